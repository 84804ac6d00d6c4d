# Packages of npm for the tests of this folder, which source it: need_packages NAME... sets $modules, the folder they are in, where
# NODE_PATH says; with CI=true those that are missing are fetched. Needs `skip`.
# SPDX-License-Identifier: MIT
need_packages() {
    command -v node >/dev/null || skip 'node is not installed'
    modules=${NODE_PATH:-$HOME/.cache/ringd-web/node_modules}
    for package in "$@"; do
        [ -d "$modules/$package" ] && continue
        [ "${CI:-}" = true ] || skip "$package is not in $modules: NODE_PATH names its folder, or CI=true fetches it"
        npm install --silent --prefix "$(dirname "$modules")" "$@" >/dev/null 2>&1 || skip "npm could not fetch $*"
    done
}
