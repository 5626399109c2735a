# The commands of this repository. Each target first lets tools/setup install what it needs; on a
# machine that has everything that takes a third of a second.

PREFIX ?= /usr/local
DESTDIR ?=

# Where the library, the daemon's configuration and its units go; distributions have other places.
LIBDIR ?= $(PREFIX)/lib
SYSCONFDIR ?= $(if $(filter /usr /usr/local,$(PREFIX)),/etc,$(PREFIX)/etc)
UNITDIR ?= $(PREFIX)/lib/systemd/system

# where cargo put what is installed
BUILD ?= target/release
RELAY ?= target/relay/release/ecalls-relay

bindir = $(DESTDIR)$(PREFIX)/bin
sbindir = $(DESTDIR)$(PREFIX)/sbin
libdir = $(DESTDIR)$(LIBDIR)
# what `ecalls run` loads before a program's C library
preloads = $(DESTDIR)$(PREFIX)/lib/ecalls
preloaded = libecalls_io.so libecalls_pthread.so
includedir = $(DESTDIR)$(PREFIX)/include
mandir = $(DESTDIR)$(PREFIX)/share/man
docdir = $(DESTDIR)$(PREFIX)/share/doc/ecalls
completions = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
unitdir = $(DESTDIR)$(UNITDIR)
sysusersdir = $(DESTDIR)$(PREFIX)/lib/sysusers.d
tmpfilesdir = $(DESTDIR)$(PREFIX)/lib/tmpfiles.d
configuration = $(DESTDIR)$(SYSCONFDIR)/ecalls/ecallsd.toml
relay_configuration = $(dir $(configuration))relay.toml

version = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
soname = $(shell sed -n 's/^const SONAME.*"\(.*\)";/\1/p' crates/ecalls-c/build.rs)
library = libecalls.so.$(version)
# as pkg-config likes it: what lies below the prefix follows when that is moved
pc_libdir = $(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))
documents = README.md LICENSE.md LICENSE-MIT LICENSE-APACHE LICENSE-GPL-2.0
headers = $(notdir $(wildcard abi/*.h))
# What a service that is added while the core runs is compiled with: our headers, and libbpf's as
# cargo has unpacked them.
service_headers = $(wildcard abi/*.h) $(patsubst bpf/%,%,$(wildcard $(addprefix bpf/,*.h event/*.h lib/*.h ecalls/*.h)))
libbpf_headers = bpf_helpers.h bpf_helper_defs.h bpf_tracing.h bpf_core_read.h
libbpf = $(dir $(firstword $(wildcard $(BUILD)/build/libbpf-sys-*/out/include/bpf/bpf_helpers.h)))
manuals = $(filter-out ecalls-relay.8,$(notdir $(wildcard doc/man/*.[1-8])))
units = $(notdir $(wildcard etc/systemd/*.service etc/systemd/*.socket))

# where rustup puts Rust, in case the shell does not know
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help build relay arm64 demo check test nightly lint format bench soak deb clean
.PHONY: install install-command install-bench install-daemon install-library install-service
.PHONY: install-relay
.PHONY: install-manual uninstall

help:
	@echo "make build      compile everything (target/release/ecalls)"
	@echo "make relay      the relay to other hosts (Zenoh: some minutes the first time)"
	@echo "make arm64      the same for arm64, on another machine (target/aarch64-unknown-linux-gnu)"
	@echo "make demo       see it work: a web server's events, then schedulers side by side (root)"
	@echo "make test       every check that this machine can run (root runs more)"
	@echo "make check      what to run after each change: form, lints, tests of the changed crates"
	@echo "make nightly    what takes longer: 100,000 random E-code programs (root: in the kernel too)"
	@echo "make lint       only the checks that run no test"
	@echo "make format     lay the source out as make lint wants it"
	@echo "make bench      measure events, E-code, a web server and schedulers (root; six minutes)"
	@echo "make soak       an hour of many clients: does anything grow? (root; SECONDS=... changes it)"
	@echo "make install    into PREFIX=$(PREFIX), below DESTDIR if set"
	@echo "make uninstall  the same, undone"
	@echo "make deb        Debian packages of it, in target/deb"
	@echo "make clean      remove what was built"

build:
	tools/setup build
	cargo build --release

relay:
	tools/setup build
	cargo build --release --manifest-path crates/ecalls-relay/Cargo.toml --target-dir target/relay \
		--bins --examples

arm64:
	tools/setup build arm64
	tools/arm64 cargo build --release --workspace

demo:
	tools/setup build demo
	tools/setup vm || true # what is missing for its last part, that says
	cargo build --release
	target/release/ecalls demo
	tools/bench demo

check:
	tools/setup build test
	tools/test tidy rustfmt docs clippy changed

test:
	tools/setup build demo deb test vm
	tools/setup arm64 || true # what is missing for its step, that says
	tools/test

# how many random programs make nightly runs, and the seed of the first: other ones each time
PROGRAMS ?= 100000
SEED ?= $(shell date +%s)
# how long it fuzzes each target
FUZZ_SECONDS ?= 60

# the test machine as cargo's runner
runner := CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER
steady := $(CURDIR)/tools/vm/run --mode steady --timeout 1800

nightly: export ECALLS_PROGRAMS = $(PROGRAMS)
nightly: export ECALLS_SEED := $(SEED)
nightly:
	tools/setup build test nightly arm64
	cargo test --release -p ecode -p ecode-native --features ecode-native/code -- --nocapture
	ECALLS_TEST_ROOT=1 cargo test --release -p ecalls-kernel --test ecode -- --nocapture
	tools/setup deb
	ECALLS_NIGHTLY=1 tools/test deb
	ECALLS_NIGHTLY=1 ECALLS_TEST_ROOT=1 cargo test -p ecalls --test lifecycle
	ECALLS_NIGHTLY=1 ECALLS_TEST_ROOT=1 cargo test -p ecallsd --test attack -- daemon_killed
	ECALLS_TEST_ROOT=1 tools/arm64 cargo test -p ecalls --test conformance --test downcall \
		--test sources --test ecode
	tools/judges target/judges
	ECALLS_NIGHTLY=1 ECALLS_JUDGES=$(CURDIR)/target/judges \
		cargo test -p ecalls-io -p ecalls-pthread -- --nocapture
	ECALLS_NIGHTLY=1 ECALLS_TEST_ROOT=1 cargo test -p ecalls-web --test web browser
	ECALLS_NIGHTLY=1 cargo test -p ecalls-web --test servers -- --nocapture
	ECALLS_NIGHTLY=1 cargo test -p ecalls-threads --test seeds -- --nocapture
	cargo build -p ecalls-cli -p ecalls-pthread
	for kernel in "" ECALLS_THREADS_NO_KERNEL=1; do \
		env $$kernel ECALLS_TEST_WORKSPACE=1 cargo test --workspace --tests --no-fail-fast \
			--config "target.'cfg(unix)'.runner = '$(CURDIR)/tools/threaded'" || exit 1; \
	done
	cargo run --release -p sched-sim -- 100000000
	tools/setup vm
	ECALLS_TEST_ROOT=1 ECALLS_TEST_STARTS=30 $(runner)="$(steady) --" \
		cargo test -p ecalls --test scheduler_survives it_starts_beside
	tools/vm/suite more
	cargo build --release -p ecalls-bench -p ecalls-cli -p ecalls-pthread
	for cpus in 1 2 4; do tools/vm/run --mode steady --cpus $$cpus --timeout 3000 \
		--with target/release/ecalls --with target/release/ecalls-bench \
		--with target/release/libecalls_pthread.so -- tools/vm/threads || exit 1; done
	for cpus in 2 4; do tools/vm/run --mode steady --cpus $$cpus --timeout 3000 -- \
		target/release/ecalls-bench bench sched --check --row ordinary --seconds 2 \
		--scheduler ecalls --scheduler eevdf || exit 1; done
	for cpus in 2 4; do tools/vm/foreign $$cpus || exit 1; done
	$(MAKE) relay
	tools/vm/hosts
	tools/bench coop --check
	tests/fuzz/run c $(FUZZ_SECONDS)
	! RUSTUP_AUTO_INSTALL=0 cargo +nightly --version >/dev/null 2>&1 || tests/fuzz/run rust $(FUZZ_SECONDS)

lint:
	tools/setup build test
	tools/test tidy shellcheck rustfmt clippy clang-format headers docs doc deny

format:
	tools/setup build test
	cargo fmt --all
	cargo fmt --manifest-path tests/fuzz/libfuzzer/Cargo.toml
	cargo fmt --manifest-path crates/ecalls-relay/Cargo.toml
	git ls-files 'abi/*.h' 'bpf/*.c' 'bpf/*.h' 'examples/service/*.c' | xargs clang-format-19 -i

bench:
	tools/setup build demo
	tools/setup vm || true # where the kernel has no sched_ext, schedulers are measured there
	cargo build --release --workspace --features ecalls-bench/native
	tools/bench

# how long make soak takes
SECONDS ?= 3600

soak:
	tools/setup build
	cargo build --release
	target/release/soak --seconds $(SECONDS)

# Installs what was built before, so that root needs no compiler: make build && sudo make install
install: install-command install-bench install-daemon install-library install-service install-manual

install-command:
	@test -x $(BUILD)/ecalls || { echo "nothing to install yet: run make build" >&2; exit 1; }
	install -D -m 755 $(BUILD)/ecalls $(bindir)/ecalls
	for name in $(preloaded); do \
		install -D -m 644 $(BUILD)/$$name $(preloads)/$$name || exit 1; \
	done
	install -d $(docdir) $(mandir)/man1 $(completions)
	$(BUILD)/ecalls man $(mandir)/man1
	$(BUILD)/ecalls completions bash >$(completions)/ecalls
	install -m 644 $(documents) $(docdir)

install-bench:
	@test -x $(BUILD)/ecalls-bench || { echo "nothing to install yet: run make build" >&2; exit 1; }
	install -D -m 755 $(BUILD)/ecalls-bench $(bindir)/ecalls-bench
	$(BUILD)/ecalls-bench man $(mandir)/man1

# The daemon, its units and their account and folder, and its configuration, which stays as it is if
# the machine has one.
install-daemon:
	@test -x $(BUILD)/ecallsd || { echo "nothing to install yet: run make build" >&2; exit 1; }
	install -D -m 755 $(BUILD)/ecallsd $(sbindir)/ecallsd
	install -d $(unitdir) $(sysusersdir) $(tmpfilesdir)
	for unit in $(units); do \
		sed 's|/usr/\(s*bin\)/|$(PREFIX)/\1/|' etc/systemd/$$unit >$(unitdir)/$$unit || exit 1; \
		chmod 644 $(unitdir)/$$unit; \
	done
	install -m 644 etc/systemd/sysusers.conf $(sysusersdir)/ecallsd.conf
	install -m 644 etc/systemd/tmpfiles.conf $(tmpfilesdir)/ecallsd.conf
	test -e $(configuration) || install -D -m 644 etc/ecallsd.toml $(configuration)

# The relay, which is not part of `make install`: make relay && sudo make install-relay
install-relay:
	@test -x $(RELAY) || { echo "nothing to install yet: run make relay" >&2; exit 1; }
	install -D -m 755 $(RELAY) $(sbindir)/ecalls-relay
	install -d $(unitdir) $(sysusersdir)
	sed 's|/usr/\(s*bin\)/|$(PREFIX)/\1/|' etc/relay/ecalls-relay.service \
		>$(unitdir)/ecalls-relay.service
	chmod 644 $(unitdir)/ecalls-relay.service
	install -m 644 etc/relay/sysusers.conf $(sysusersdir)/ecalls-relay.conf
	install -D -m 644 doc/man/ecalls-relay.8 $(mandir)/man8/ecalls-relay.8
	test -e $(relay_configuration) || \
		install -D -m 644 etc/relay/relay.toml $(relay_configuration)

# The library under its full name, the name that programs ask for, and the name for linking.
install-library:
	@test -f $(BUILD)/libecalls.so || { echo "nothing to install yet: run make build" >&2; exit 1; }
	install -D -m 755 $(BUILD)/libecalls.so $(libdir)/$(library)
	ln -sf $(library) $(libdir)/$(soname)
	ln -sf $(soname) $(libdir)/libecalls.so
	install -m 644 $(BUILD)/libecalls.a $(libdir)/libecalls.a
	install -D -m 644 include/ecalls.h $(includedir)/ecalls.h
	install -m 644 include/ecalls-*.h $(includedir)
	install -d $(includedir)/ecalls $(libdir)/pkgconfig
	install -m 644 $(addprefix abi/,$(headers)) $(includedir)/ecalls
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(pc_libdir)|; s|@VERSION@|$(version)|; /^#/d' \
		ecalls.pc.in \
		>$(libdir)/pkgconfig/ecalls.pc
	chmod 644 $(libdir)/pkgconfig/ecalls.pc

# The headers for services that are added while the core runs (GPL-2.0-only, libbpf's LGPL-2.1 or
# BSD-2-Clause).
install-service:
	@test -n "$(libbpf)" || { echo "nothing to install yet: run make build" >&2; exit 1; }
	for header in $(service_headers); do \
		test -e bpf/$$header && from=bpf/$$header || from=$$header; \
		install -D -m 644 $$from $(includedir)/ecalls/bpf/$$header || exit 1; \
	done
	install -d $(includedir)/ecalls/bpf/bpf
	install -m 644 $(addprefix $(libbpf),$(libbpf_headers)) $(includedir)/ecalls/bpf/bpf

install-manual:
	for page in $(manuals); do \
		install -D -m 644 doc/man/$$page $(mandir)/man$${page##*.}/$$page || exit 1; \
	done

# Removes what install made and no more; folders only if they are ours and empty, and the
# configuration only as it was installed.
uninstall:
	rm -f $(bindir)/ecalls $(bindir)/ecalls-bench $(mandir)/man1/ecalls.1 $(mandir)/man1/ecalls-*.1
	rm -f $(completions)/ecalls $(addprefix $(preloads)/,$(preloaded))
	rm -f $(sbindir)/ecallsd $(addprefix $(unitdir)/,$(units))
	rm -f $(sysusersdir)/ecallsd.conf $(tmpfilesdir)/ecallsd.conf
	! cmp -s etc/ecallsd.toml $(configuration) || rm $(configuration)
	rm -f $(sbindir)/ecalls-relay $(unitdir)/ecalls-relay.service $(sysusersdir)/ecalls-relay.conf
	rm -f $(mandir)/man8/ecalls-relay.8
	! cmp -s etc/relay/relay.toml $(relay_configuration) || rm $(relay_configuration)
	rm -f $(addprefix $(libdir)/,$(library) $(soname) libecalls.so libecalls.a)
	rm -f $(libdir)/pkgconfig/ecalls.pc $(includedir)/ecalls.h
	rm -f $(addprefix $(includedir)/,$(notdir $(wildcard include/ecalls-*.h)))
	rm -f $(addprefix $(includedir)/ecalls/,$(headers)) $(addprefix $(docdir)/,$(documents))
	for page in $(manuals); do rm -f $(mandir)/man$${page##*.}/$$page; done
	rm -f $(addprefix $(includedir)/ecalls/bpf/,$(service_headers))
	rm -f $(addprefix $(includedir)/ecalls/bpf/bpf/,$(libbpf_headers))
	for folder in $(addprefix $(includedir)/ecalls/bpf/,abi bpf ecalls event lib) \
		$(includedir)/ecalls/bpf $(includedir)/ecalls $(preloads) $(docdir) $(dir $(configuration)); do \
		test ! -d $$folder || rmdir --ignore-fail-on-non-empty $$folder; \
	done

deb:
	tools/setup build deb
	cargo build --release
	tools/deb

clean:
	rm -rf target
