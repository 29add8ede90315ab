#!/bin/bash
# Scans the TLS of Postrider with testssl.sh and sslyze: `bash tls-scan.sh`. Prints what they report above "low", and ends with 1 if that is
# anything. The certificate is from an authority made here. A scanner that is missing is told and left out
# (apt-get install testssl.sh; pip install sslyze).
# Environment: POSTRIDER (the binary), SSLYZE (a Python with sslyze: python3).
set -euo pipefail
POSTRIDER=$(command -v "${POSTRIDER:-postrider}") SSLYZE=${SSLYZE:-python3}
data=$(mktemp -d)
server=
finish() {
	[ -z "$server" ] || { kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; } || true
	rm -rf "$data"
}
trap finish EXIT
trap 'exit 130' INT TERM
cd "$data"
{
	openssl req -x509 -newkey rsa:3072 -nodes -days 365 -keyout ca.key -out ca.pem -subj "/CN=Authority" \
		-addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign"
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout mx.key -out mx.csr -subj "/CN=localhost"
	printf 'subjectAltName=DNS:mx.test,DNS:localhost,IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth\ncrlDistributionPoints=URI:http://localhost/ca.crl\n' >extensions
	openssl x509 -req -in mx.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 90 -extfile extensions -out mx.pem
} 2>/dev/null
port=$((31000 + RANDOM % 1000))
implicit=$((port + 1))
echo 'jane:{PLAIN}secret' >users
cat >postrider.toml <<END
hostname = "mx.test"
data_dir = "data"
[[listen]]
address = "127.0.0.1:$port"
[[listen]]
address = "127.0.0.1:$implicit"
kind = "submissions"
[tls]
certificate = "mx.pem"
key = "mx.key"
[auth]
users = "passwd:users"
END
"$POSTRIDER" serve --config postrider.toml >out 2>log &
server=$!
until grep -q "listening on 127.0.0.1:$implicit" log; do kill -0 "$server"; sleep 0.1; done

failed=0
if command -v testssl >/dev/null; then
	for words in "--starttls smtp localhost:$port" "localhost:$implicit"; do
		rm -f found.json
		# shellcheck disable=SC2086
		testssl --quiet --color 0 --add-ca "$data/ca.pem" --ip 127.0.0.1 --jsonfile found.json --severity LOW $words >text 2>&1 </dev/null || true
		python3 - "$words" <<'END' || failed=1
import json, sys
found = json.load(open("found.json"))
serious = [row for row in found if row["severity"] in ("MEDIUM", "HIGH", "CRITICAL", "FATAL")]
low = ", ".join(f'{row["id"]} {row["finding"]}' for row in found if row["severity"] == "LOW")
print(f"testssl {sys.argv[1]}: {len(serious)} findings above low; low: {low or 'none'}")
for row in serious:
    print("   ", row["severity"], row["id"], row["finding"])
sys.exit(bool(serious))
END
	done
	testssl --version 2>/dev/null | grep -o 'testssl.*[0-9]\.[0-9][^ ]*' | head -1 || true
else echo "SKIPPED: testssl.sh is not installed (apt-get install testssl.sh)"; fi
if "$SSLYZE" -c 'import sslyze' 2>/dev/null; then
	for words in "--starttls smtp localhost:$port" "localhost:$implicit"; do
		# shellcheck disable=SC2086
		"$SSLYZE" -m sslyze --certinfo_ca_file ca.pem --mozilla_config intermediate $words >text 2>&1 </dev/null || true
		serious=$(grep -E 'VULNERABLE' text | grep -vE 'OK -|NOT VULNERABLE' || true)
		old=$(grep -A2 -E 'SSL 2.0|SSL 3.0|TLS 1.0|TLS 1.1' text | grep -c 'rejected all' || true)
		echo "sslyze $words: ${serious:-no vulnerability}; $old of 4 old versions refused"
		sed -n '/COMPLIANCE AGAINST/,$p' text | grep -E 'FAILED|OK|localhost:' || true
		[ -z "$serious" ] && [ "$old" = 4 ] || failed=1
	done
else echo "SKIPPED: sslyze is not installed (pip install sslyze)"; fi
exit "$failed"
