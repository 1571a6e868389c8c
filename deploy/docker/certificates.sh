#!/bin/sh
# Makes the demonstration's authority and certificates, once. Each proxy sees its own directory only.
set -eu
ca=/ca/authority
if [ ! -e /tls/server/server.pem ]; then
    [ -e "$ca/ca.pem" ] || isthmus-server certs init --ca "$ca" --name "Isthmus demo CA"
    isthmus-server certs issue --ca "$ca" --role client-side --name client --out /tls/client
    isthmus-server certs issue --ca "$ca" --role server-side --name server --dns server --out /tls/server
fi
isthmus-server certs show --ca "$ca"
