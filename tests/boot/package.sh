#!/bin/sh
# The package: lintian has nothing to say of it, everything a program needs is in it, and it is the same, byte for byte, when
# it is built again in another folder under another umask. usage: package.sh BUILD
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
fail() {
    echo "FAILED: $*" >&2
    exit 1
}
ok() {
    echo "ok: $*"
}
deb=$(ls -t "$build"/ringd_*.deb 2>/dev/null | head -n 1)
[ -n "$deb" ] || {
    echo "skipped: there is no package in $build: make deb makes one"
    exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

dpkg-deb -c "$deb" | awk '{ print $6 }' >"$work/files"
for file in /usr/sbin/ringd /usr/sbin/ringd-link /usr/bin/ringctl /usr/libexec/ringd/ringd-keys /usr/libexec/ringd/ringd-fetch /usr/libexec/ringd/ringd-stage /etc/ringd/ringd.conf \
    /etc/apparmor.d/usr.sbin.ringd /etc/apparmor.d/usr.sbin.ringd-link /usr/lib/systemd/catalog/ringd.catalog /usr/lib/sysusers.d/ringd.conf /usr/lib/tmpfiles.d/ringd.conf \
    /usr/lib/modules-load.d/ringd.conf /usr/share/bash-completion/completions/ringctl \
    /usr/share/fish/vendor_completions.d/ringctl.fish /usr/share/zsh/vendor-completions/_ringctl /usr/share/man/man1/ringctl.1.gz /usr/share/man/man5/ringd.conf.5.gz \
    /usr/share/man/man8/ringd.8.gz /usr/share/man/man8/ringd-link.8.gz; do
    grep -qx ".$file" "$work/files" || fail "$file is not in the package"
done
for unit in ringd.service ringd.socket ringd-link.service; do # Debian 12 has them in /lib
    grep -qxE "\.(/usr)?/lib/systemd/system/$unit" "$work/files" || fail "$unit is not in the package"
done
for file in README.md API.md PROTOCOL.md SCHEDULES.md ADAPTERS.md DATA.md QUANTIZATION.md; do
    grep -qxE "./usr/share/doc/ringd/$file(.gz)?" "$work/files" || fail "$file is not among the package's documents"
done
for file in docs/openapi.* docs/grafana.json; do # programs read these: as they are
    grep -qx "./usr/share/doc/ringd/${file#docs/}" "$work/files" || fail "$file is not among the package's documents"
done
dpkg-deb -x "$deb" "$work/root"
for shell in bash:bash-completion/completions/ringctl fish:fish/vendor_completions.d/ringctl.fish zsh:zsh/vendor-completions/_ringctl; do
    ! command -v "${shell%%:*}" >/dev/null || "${shell%%:*}" -n "$work/root/usr/share/${shell#*:}" || fail "the completion for ${shell%%:*} does not parse"
done
if command -v apparmor_parser >/dev/null; then
    for profile in usr.sbin.ringd usr.sbin.ringd-link; do
        apparmor_parser -QK "$work/root/etc/apparmor.d/$profile" 2>"$work/said" || fail "the AppArmor profile $profile: $(cat "$work/said")"
    done
fi
ok "$(wc -l <"$work/files") files and folders, $(($(stat -c %s "$deb") / 1024)) KiB; completions and AppArmor profiles parse"

if command -v lintian >/dev/null; then
    # In a program it takes instructions for words.
    lintian --allow-root --suppress-tags spelling-error-in-binary --fail-on error,warning,info --display-info --pedantic "$deb" >"$work/said" 2>&1 || fail "lintian: $(cat "$work/said")"
    ok "lintian has nothing to say"
else
    echo "ok: lintian is not installed, nobody has judged the package"
fi

# A copy elsewhere, of what git knows; a package of the same version must come out the same.
mkdir "$work/again"
{ git ls-files -co --exclude-standard 2>/dev/null || find . -type f -not -path './build*' -printf '%P\n'; } |
    while IFS= read -r f; do [ ! -e "$f" ] || printf '%s\n' "$f"; done | tar -cf - -T - | tar -xf - -C "$work/again"
export CCACHE_DISABLE=1 # which would take the first one's
(cd "$work/again" && umask 077 && systemd/make-deb "$(dpkg-deb -f "$deb" Version)") >"$work/said" 2>&1 || fail "$(cat "$work/said")"
cmp "$deb" "$work/again/build/$(basename "$deb")" || {
    cp "$work/again/build/$(basename "$deb")" "$build/other.deb"
    fail "built again, the package differs: compare it with $build/other.deb (diffoscope), if nothing was edited meanwhile"
}
ok "built again in another folder, it is the same byte for byte"
