#!/bin/bash
# Copies the share over the emulated WAN: directly, then twice through the pair. Prints what each took and compares all files.
set -euo pipefail

# The answer's body to a GET from the client-side proxy's admin port, or nothing.
get() {
    { exec 3<>/dev/tcp/client/7811; } 2>/dev/null || return 0
    printf 'GET %s HTTP/1.1\r\nHost: client\r\nConnection: close\r\n\r\n' "$1" >&3
    cat <&3
    exec 3>&-
}

# The sum over a metric's samples.
sum() { get /metrics | awk -v name="$1" 'index($0, name "{") == 1 { sum += $NF } END { printf "%.0f", sum }'; }

# Waits until a command prints something with this text.
await() {
    local text=$1
    shift
    for _ in $(seq 120); do
        "$@" 2>/dev/null | grep -q "$text" && return
        sleep 1
    done
    echo "gave up waiting for: $*" >&2
    exit 1
}

list() { smbclient "//files/share" -U demo%demo -c ls; }

copy() { # NAME HOST
    local folder=/tmp/copies/$1 lan wan start
    mkdir -p "$folder"
    lan=$(sum isthmus_lan_bytes_total)
    wan=$(sum isthmus_wan_bytes_total)
    start=$(date +%s%N)
    smbclient "//$2/share" -U demo%demo -c "prompt OFF; recurse ON; lcd \"$folder\"; mget *" >/tmp/copies/log 2>&1 ||
        { cat /tmp/copies/log >&2; exit 1; }
    local ms=$((($(date +%s%N) - start) / 1000000))
    sleep 1 # the last acknowledgements
    lan=$(($(sum isthmus_lan_bytes_total) - lan))
    wan=$(($(sum isthmus_wan_bytes_total) - wan))
    [ "$1" = direct ] && lan=$(du -sb "$folder" | cut -f1) wan=$lan
    printf '%-8s %5d.%03d s  %12d bytes on the LAN  %12d on the WAN\n' "$1" $((ms / 1000)) $((ms % 1000)) "$lan" "$wan"
    [ "$1" = direct ] || diff -r /tmp/copies/direct "$folder"
}

await '"ready":true' get /readyz
await mixed.bin list
copy direct files
copy first client
copy second client
echo "all files are the same"
