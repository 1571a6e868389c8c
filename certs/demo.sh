#!/bin/sh
# Makes a demonstration set of certificates: an authority, a server-side certificate for loopback, and a client-side one.
#
#   certs/demo.sh DIR [NAME-OR-ADDRESS ...]
#
# Further names and addresses are added to the server-side certificate. ISTHMUS_SERVER names the program; by default the
# one that cargo built is taken, and built if there is none.
set -eu

if [ $# -lt 1 ]; then
    echo "usage: $0 DIR [NAME-OR-ADDRESS ...]" >&2
    exit 64
fi
dir=$1
shift

root=$(cd "$(dirname "$0")/.." && pwd)
server=${ISTHMUS_SERVER:-}
if [ -z "$server" ]; then
    for built in "$root/target/release/isthmus-server" "$root/target/debug/isthmus-server"; do
        if [ -x "$built" ]; then
            server=$built
            break
        fi
    done
fi
if [ -z "$server" ]; then
    cargo build --quiet --manifest-path "$root/Cargo.toml" --package isthmus-server
    server=$root/target/debug/isthmus-server
fi

reached_by="--dns localhost --ip 127.0.0.1 --ip ::1"
for name in "$@"; do
    case $name in
        *[!0-9.]*) case $name in *:*) flag=--ip ;; *) flag=--dns ;; esac ;;
        *) flag=--ip ;;
    esac
    reached_by="$reached_by $flag $name"
done

"$server" certs init --ca "$dir/ca" --name "Isthmus demo CA"
# Names and addresses have no spaces, so the list may fall apart at them.
# shellcheck disable=SC2086
"$server" certs issue --ca "$dir/ca" --role server-side --name server $reached_by --out "$dir" >/dev/null
"$server" certs issue --ca "$dir/ca" --role client-side --name client --out "$dir" >/dev/null
"$server" certs show --ca "$dir/ca"
