#!/bin/sh
# licenses.sh FILE DOCS [PACKAGE...]: writes the licenses of the shared libraries that FILE needs to DOCS/licenses, and
# their origin to DOCS/LIBRARIES, but for those of PACKAGEs. Prints a line for each library: name and path. Needs dpkg.
set -eu
file=$1
docs=$2
shift 2
left_out=" $* "
LC_ALL=C
export LC_ALL
mkdir -p "$docs/licenses/common"

fail() {
    echo "licenses: $*" >&2
    exit 1
}

# The package of a file. A file in /usr/lib may be registered as one in /lib.
owner() {
    real=$(readlink -f "$1")
    { dpkg-query -S "$real" 2>/dev/null || dpkg-query -S "${real#/usr}" 2>/dev/null; } | sed 's/[:,].*//; q'
}

# ldd's lines "NAME => PATH (ADDRESS)"
needed=$(ldd "$file")
! echo "$needed" | grep 'not found' >&2 || fail "$file: libraries are missing"
libraries=$(echo "$needed" | sed -n 's/^[[:space:]]*\([^ ]*\) => \(\/[^ ]*\) .*/\1 \2/p' | sort)
: >"$docs/LIBRARIES"
echo "$libraries" | while read -r library path; do
    package=$(owner "$path")
    [ -n "$package" ] || fail "$path: in no package: its license is unknown"
    case $left_out in *" $package "*) continue ;; esac
    echo "$library $path"
    cp -L "/usr/share/doc/$package/copyright" "$docs/licenses/$package" || fail "$package: no copyright file"
    # shellcheck disable=SC2016
    dpkg-query -W -f "$library: package \${Package} \${Version}, source \${source:Package} \${source:Version}\n" \
        "$package" | sed q >>"$docs/LIBRARIES"
done
# The texts that Debian's copyright files refer to.
texts=$(grep -oh '/usr/share/common-licenses/[A-Za-z0-9.+-]*[A-Za-z0-9+]' "$docs"/licenses/* 2>/dev/null | sort -u)
for text in $texts; do
    [ ! -e "$text" ] || cp -L "$text" "$docs/licenses/common/"
done
