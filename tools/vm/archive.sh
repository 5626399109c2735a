# shellcheck shell=bash
# Where the Debian archive is and whose keys verify it: for what takes packages from a suite that
# the machine's own configuration of apt does not name. Read by `fetch` and by tools/setup, which
# say why they end with `say`.

codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)

# The mirror of the machine's own release, as apt itself reads it from the configuration, or else
# any that carries Debian.
archive_mirror() {
    apt-get indextargets --format "\$(RELEASE)|\$(COMPONENT)|\$(ORIGIN)/\$(LABEL)|\$(REPO_URI)" \
        'Identifier: Packages' | awk -F'|' -v codename="$codename" -v own="${ECALLS_VM_MIRROR:-}" '
            $2 == "main" && $1 == codename && !own { own = $4 }
            $2 == "main" && $3 == "Debian/Debian" && !any { any = $4 }
            END { print own ? own : any; exit !(own || any) }' && return
    say "apt's sources name no Debian mirror: set ECALLS_VM_MIRROR to the URL of one"
    return 1
}

archive_keyring() {
    local file
    for file in ${ECALLS_VM_KEYRING:+"$ECALLS_VM_KEYRING"} \
        /usr/share/keyrings/debian-archive-keyring.{pgp,gpg}; do
        if [ -r "$file" ]; then
            echo "$file"
            return
        fi
    done
    say "no keys of the Debian archive: install the package debian-archive-keyring"
    return 1
}

# A source of apt: $1 = mirror, $2 = keyring, the rest = suites.
archive_source() {
    printf '%s\n' "Types: deb" "URIs: $1" "Suites: ${*:3}" "Components: main" "Targets: Packages" \
        "Signed-By: $2"
}
