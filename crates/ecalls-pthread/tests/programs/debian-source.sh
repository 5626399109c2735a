# shellcheck shell=bash
# Sourced by scripts that make tests of others from Debian's source packages.
#
# apt works in the folder: the machine's mirror and keys, but no change to the machine's package
# lists.

say() {
    printf '%s\n' "$*" >&2
}

# Ends with 77: what is to be made cannot be made here.
cannot() {
    # shellcheck disable=SC2154 # whoever sources this sets it
    say "$what cannot be made: $*"
    exit 77
}

# Downloads a package's source into a folder, and goes there. $what is what it is for.
get_source() {
    local package=$1 folder=$2 command mirror keyring
    for command in apt-get dpkg cc tar xz; do
        command -v $command >/dev/null || cannot "$command is not installed"
    done
    # shellcheck source=SCRIPTDIR/../../../../tools/vm/archive.sh
    . "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../../../../tools/vm/archive.sh"
    mirror=$(archive_mirror) && keyring=$(archive_keyring) || exit 77
    mkdir -p "$folder"/{parts,lists/partial}
    archive_source "$mirror" "$keyring" "$codename" |
        sed 's/^Types: deb$/Types: deb-src/; s/^Targets: .*/Targets: Sources/' \
            >"$folder/parts/source.sources"
    local apt=(apt-get -qq -o Dir::Etc::sourcelist=/dev/null
        -o "Dir::Etc::sourceparts=$folder/parts" -o "Dir::State::lists=$folder/lists"
        -o APT::Sandbox::User=)
    cd "$folder" || exit 1
    if ! "${apt[@]}" update || ! "${apt[@]}" source --download-only "$package"; then
        cannot "$mirror does not give the source of $package"
    fi
    rm -rf lists
}
