# SPDX-License-Identifier: MIT
# The options of one help text, one per line: short TAB long TAB placeholder TAB help. For what is made of them: man pages
# (docs/make-man) and the default ringd.conf (systemd/make-conf).
function flush() { if (name != "") printf "%s\t%s\t%s\t%s\n", short, name, arg, help; name = "" }
/^  (    |-., )--/ {
    flush()
    short = substr($0, 3, 1) == "-" ? substr($0, 4, 1) : ""
    line = substr($0, 9)
    cut = match(line, /  +/)
    left = cut ? substr(line, 1, cut - 1) : line
    help = cut ? substr(line, cut + RLENGTH) : ""
    n = index(left, " ")
    name = n ? substr(left, 1, n - 1) : left
    arg = n ? substr(left, n + 1) : ""
    next
}
/^          / && name != "" { sub(/^ +/, ""); help = help (help == "" ? "" : " ") $0; next }
{ flush() }
END { flush() }
