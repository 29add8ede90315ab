#!/bin/bash
# A slapd (OpenLDAP) of its own with the keys of `postlab map-lookup -n ENTRIES`, while COMMAND runs:
#   bash slapd.sh ENTRIES COMMAND…
# COMMAND finds HOST:PORT/BASE for `--ldap` in $LDAP. Needs slapd (apt-get install slapd) and no root; no other slapd is
# touched. Environment: POSTLAB (the binary), LDAP_PORT (31389), SCHEMA (/etc/ldap/schema), MODULES (/usr/lib/ldap).
set -euo pipefail
PATH=$PATH:/usr/sbin:/usr/lib/openldap
[ $# -ge 2 ] || { echo "usage: slapd.sh ENTRIES COMMAND…" >&2; exit 64; }
entries=$1; shift
schema=${SCHEMA:-/etc/ldap/schema} modules=${MODULES:-/usr/lib/ldap} port=${LDAP_PORT:-31389}
base=dc=example,dc=test
command -v slapd >/dev/null || { echo "slapd.sh: slapd is not installed: apt-get install slapd" >&2; exit 1; }
data=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || { kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; }; rm -rf "$data"' EXIT
trap 'exit 1' INT TERM

mkdir "$data/db"
cat >"$data/slapd.conf" <<END
include $schema/core.schema
include $schema/cosine.schema
include $schema/inetorgperson.schema
modulepath $modules
moduleload back_mdb
pidfile $data/pid
database mdb
suffix "$base"
directory $data/db
maxsize 8589934592
index mail,objectClass eq
END
{
	printf 'dn: %s\nobjectClass: dcObject\nobjectClass: organization\no: test\ndc: example\n\n' "$base"
	"${POSTLAB:-postlab}" map-lookup -n "$entries" --keys | awk -v base="$base" '{
		printf "dn: cn=%s,%s\nobjectClass: inetOrgPerson\ncn: %s\nsn: x\nmail: %s\ndescription: x\n\n", $1, base, $1, $1 }'
} >"$data/entries.ldif"
slapadd -q -f "$data/slapd.conf" -l "$data/entries.ldif" >&2
slapd -d 0 -h "ldap://127.0.0.1:$port" -f "$data/slapd.conf" &
pid=$!
until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
	kill -0 "$pid" 2>/dev/null || { echo "slapd.sh: slapd ended: is port $port taken? set LDAP_PORT" >&2; exit 1; }
	sleep 0.1
done
LDAP=127.0.0.1:$port/$base "$@"
