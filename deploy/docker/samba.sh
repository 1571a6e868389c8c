#!/bin/sh
# Fills the share once, and serves it.
set -eu
if [ ! -e /srv/share/mixed.bin ]; then
    isthmus-lab corpus /srv/share --mebibytes 10
    # One folder of small files is enough: each file takes some round trips, with the pair or without.
    find /srv/share/small -mindepth 1 -maxdepth 1 ! -name folder00 -exec rm -r {} +
    chown -R demo /srv/share
fi
printf 'demo\ndemo\n' | smbpasswd -s -a demo >/dev/null
exec smbd --foreground --no-process-group --debug-stdout
