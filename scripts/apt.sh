#!/usr/bin/env bash
# Installs those of the named Debian packages that are missing: apt.sh PACKAGE...
source "$(dirname "$0")/common.sh"

missing=()
for package; do
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

sudo=()
if [ "$(id -u)" != 0 ]; then
    sudo=(sudo)
fi
if ! command -v apt-get >/dev/null || { [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; }; then
    echo "warning: cannot install packages here; if the build fails, install: ${missing[*]}" >&2
    exit 0
fi
say "installing system packages: ${missing[*]}"
apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600)
# A foreign source that does not answer is no reason to stop: the next line finds out.
"${apt[@]}" update || true
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null >/dev/null
