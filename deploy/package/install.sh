#!/bin/sh
# Installs, upgrades or removes a side of the pair from this unpacked archive.
#
#   ./install.sh client|server               installs or upgrades below /usr/local; --prefix DIR for another place
#   ./install.sh remove client|server        stops and removes it; configuration, certificates and store stay
#   ./install.sh purge client|server         removes these too, and the user
set -eu

usage() {
    sed -n '4,6s/^#   //p' "$0" >&2
    exit 64
}

action=install
case "${1:-}" in
remove | purge)
    action=$1
    shift
    ;;
esac
side=${1:-}
case "$side" in
client | server) shift ;;
*) usage ;;
esac
prefix=/usr/local
if [ "${1:-}" = --prefix ] && [ $# -ge 2 ]; then
    prefix=$2
    shift 2
fi
[ $# -eq 0 ] || usage
[ "$(id -u)" = 0 ] || {
    echo "install.sh: must be run as root" >&2
    exit 77
}

here=$(cd "$(dirname "$0")" && pwd)
name=isthmus-$side
unit=/etc/systemd/system/$name.service
state=/var/lib/isthmus/$side
secrets=/etc/isthmus/$side
has_systemd() { [ -d /run/systemd/system ]; }

install_side() {
    if ! getent passwd "$name" >/dev/null; then
        useradd --system --user-group --no-create-home --home-dir "$state" --shell /usr/sbin/nologin "$name"
    fi
    # A running program cannot be written over, but it can be replaced.
    install -D -m 0755 "$here/bin/$name" "$prefix/bin/$name.new"
    mv -f "$prefix/bin/$name.new" "$prefix/bin/$name"
    install -d -m 0755 "$prefix/share/doc/$name" /etc/isthmus /var/lib/isthmus "$(dirname "$unit")"
    cp -R "$here/doc/$name/." "$prefix/share/doc/$name/"
    install -m 0644 "$here/LICENSE" "$here/CHANGELOG.md" "$prefix/share/doc/$name/"
    install -m 0644 "$here/etc/$side.example.toml" "/etc/isthmus/$side.example.toml"
    [ -d "$state" ] || install -d -o "$name" -g "$name" -m 0700 "$state"
    [ -d "$secrets" ] || install -d -o root -g "$name" -m 0750 "$secrets"
    sed -e "s|/usr/bin/|$prefix/bin/|" -e "s|/usr/share/|$prefix/share/|" "$here/systemd/$name.service" >"$unit"
    chmod 0644 "$unit"
    if has_systemd; then
        systemctl daemon-reload
        # Only what runs already: a new one is to be configured first.
        systemctl try-restart "$name.service"
    fi
    if [ ! -e "/etc/isthmus/$side.toml" ]; then
        echo "Installed. Write /etc/isthmus/$side.toml (/etc/isthmus/$side.example.toml is a start), then:"
        echo "    $prefix/bin/$name check && systemctl enable --now $name"
    fi
}

remove_side() {
    if has_systemd; then
        systemctl --quiet disable --now "$name.service" || true
    fi
    rm -f "$unit" "$prefix/bin/$name"
    rm -rf "$prefix/share/doc/$name"
    if has_systemd; then
        systemctl daemon-reload
    fi
}

purge_side() {
    rm -rf "$state" "$secrets"
    rm -f "/etc/isthmus/$side.toml" "/etc/isthmus/$side.example.toml"
    rm -f "$unit.d/interception.conf"
    for folder in "$unit.d" /var/lib/isthmus /etc/isthmus; do
        if [ -d "$folder" ] && [ -z "$(ls -A "$folder")" ]; then
            rmdir "$folder"
        fi
    done
    if getent passwd "$name" >/dev/null; then
        userdel "$name"
    fi
}

case "$action" in
install) install_side ;;
remove) remove_side ;;
purge)
    remove_side
    purge_side
    ;;
esac
