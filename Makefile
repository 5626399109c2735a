# The commands of this repository. Each target first lets tools/setup install what it needs; on a
# machine that has everything that takes a third of a second.

PREFIX ?= /usr/local
DESTDIR ?=

bindir = $(DESTDIR)$(PREFIX)/bin
docdir = $(DESTDIR)$(PREFIX)/share/doc/ecalls

# where rustup puts Rust, in case the shell does not know
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help build demo test lint format bench install uninstall clean

help:
	@echo "make build      compile everything (target/release/ecalls)"
	@echo "make demo       see it work: a web server's events, counted and timed (root)"
	@echo "make test       every check that this machine can run (root runs more)"
	@echo "make lint       only the checks that run no test"
	@echo "make format     lay the source out as make lint wants it"
	@echo "make bench      measure"
	@echo "make install    into PREFIX=$(PREFIX), below DESTDIR if set"
	@echo "make uninstall  the same, undone"
	@echo "make clean      remove what was built"

build:
	tools/setup build
	cargo build --release

demo:
	tools/setup build demo
	cargo build --release
	target/release/ecalls demo

test:
	tools/setup build test vm
	tools/test

lint:
	tools/setup build test
	tools/test tidy shellcheck rustfmt clippy clang-format headers doc deny

format:
	tools/setup build test
	cargo fmt --all
	git ls-files 'abi/*.h' 'bpf/*.c' 'bpf/*.h' | xargs clang-format-19 -i

bench:
	tools/setup build
	cargo bench --workspace

# Installs what was built before, so that root needs no compiler: make build && sudo make install
install:
	@test -x target/release/ecalls || { echo "nothing to install yet: run make build" >&2; exit 1; }
	install -D -m 755 target/release/ecalls $(bindir)/ecalls
	install -d $(docdir)
	install -m 644 README.md LICENSE.md LICENSE-MIT LICENSE-APACHE LICENSE-GPL-2.0 $(docdir)

uninstall:
	rm -f $(bindir)/ecalls
	rm -rf $(docdir)

clean:
	rm -rf target
