# ringd: one non-recursive Makefile.
#   make                 everything under build/        make V=1          show the commands
#   make SAN=address,undefined | SAN=thread             sanitizer builds, each in its own folder
#   make CC=clang                                       the other compiler, in its own folder
# SPDX-License-Identifier: MIT
MAKEFLAGS += -r
VERSION := 0.1.0
CC      := gcc
SAN     ?=
V       ?=
say      = $(if $(V),,@printf '  %-7s %s\n' $(1) $(2);)

comma   := ,
variant := $(if $(filter-out gcc cc,$(notdir $(CC))),-$(notdir $(CC)))$(if $(SAN),-$(subst $(comma),-,$(SAN)))
B       := build$(variant)

PREFIX  ?= /usr/local
DESTDIR ?=
# What belongs to the machine and not to the prefix; a package of Debian 12 keeps its units in /lib.
SYSCONFDIR ?= $(if $(filter /usr,$(PREFIX)),/etc,$(PREFIX)/etc)
UNITDIR    ?= $(PREFIX)/lib/systemd/system

# Debian's alternatives may hand the pthread build of OpenBLAS to a plain -lopenblas, so the OpenMP build is
# linked from its own folder, with an rpath.
ARCH     := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
BLASDIR  := /usr/lib/$(ARCH)-linux-gnu/openblas-openmp
BLASINC  := /usr/include/$(ARCH)-linux-gnu/openblas-openmp

sanflags := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
CFLAGS   ?= -O2 -g
# What turns a mistake in memory into an end of the program. Sanitizers find such mistakes themselves; a flag that
# a compiler or a CPU lacks is left out.
has       = $(shell $(CC) -Werror $(1) -c -x c -o /dev/null /dev/null 2>/dev/null && echo $(1))
HARDEN   := $(if $(SAN),,$(if $(filter -O1 -O2 -O3 -Os,$(CFLAGS)),-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3) $(foreach f,-fstack-protector-strong -fstack-clash-protection \
            -fcf-protection -ftrivial-auto-var-init=zero,$(call has,$(f))))
BASE     := -std=gnu17 -D_GNU_SOURCE -DRINGD_VERSION='"$(VERSION)"' -Wall -Wextra -Werror -Wformat=2 $(if $(findstring clang,$(CC)),-Wno-missing-field-initializers,-Wno-format-truncation) -Wshadow \
            -Wstrict-prototypes -Wmissing-prototypes -Wvla -fopenmp -fPIE -MMD -MP $(CPPFLAGS) $(CFLAGS) $(HARDEN) $(sanflags)
LDBASE   := -fopenmp -pie -Wl,-z,relro,-z,now $(sanflags) $(LDFLAGS)

# The fences (DESIGN: net and engine cannot see each other).
inc_net    := -iquote net
inc_engine := -iquote engine
inc_daemon := -iquote . -iquote engine
inc_tests  := -iquote . -iquote engine -iquote $(B)

BLAS_LIBS   := -L$(BLASDIR) -Wl,-rpath,$(BLASDIR) -lopenblas
NET_LIBS    := -levent_core -lsodium -lcrypto -lmnl
CELL_LIBS   := -lseccomp
ENGINE_LIBS := $(BLAS_LIBS) -ljansson -lpcre2-8 -lutf8proc -lm
DAEMON_LIBS := -lmicrohttpd -lsqlite3 -linih -ljansson

# --- sources -------------------------------------------------------------------------------------------------
net_src    := $(sort $(wildcard net/*.c net/*/*.c))
# kernels.c, integer.c, integer_tiles.c and those of tile/packed are compiled once per instruction set (below); everything else once.
kern_src   := engine/num/kernels.c
int_src    := engine/num/integer.c
tiles_src  := engine/num/tile/integer_tiles.c
packed_src := engine/num/tile/packed.c
bytes_src  := engine/num/tile/packed_bytes.c
amx_src    := engine/num/tile/packed_amx.c
engine_src := $(filter-out $(kern_src) $(int_src) $(tiles_src) $(packed_src) $(bytes_src) $(amx_src),$(sort $(wildcard engine/*.c engine/*/*.c engine/*/*/*.c)))
obj         = $(patsubst %.c,$(B)/%.o,$(1))

kern_isas  := base $(if $(filter x86_64,$(ARCH)),avx2 avx512)
kern_base  :=
kern_avx2  := -mavx2 -mfma -mf16c
# Arithmetic on arrays of our own reads nothing from outside, and clang takes minutes to instrument it.
kern_plain := $(if $(findstring fuzzer,$(SAN)),-fno-sanitize=all)
# A compiler takes six minutes for them at -O3 with sanitizers.
fast       := $(if $(SAN),-O1 $(if $(findstring clang,$(CC)),-Wno-pass-failed),-O3)
# Guards of the stack and zeroed tiles cost the kernels of whole numbers half as many instructions again.
kern_flags = $(filter-out $(HARDEN),$(BASE))
kern_avx512:= -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mprefer-vector-width=512
kern_bf16  := $(kern_avx512) -mavx512bf16
kern_vnni  := $(kern_avx512) -mavx512vnni
kern_avxvnni := $(kern_avx2) -mavxvnni
kern_amx   := $(kern_vnni) -mavx512bf16 -mamx-tile -mamx-int8 -mamx-bf16
int_isas   := base $(if $(filter x86_64,$(ARCH)),avx2 avxvnni vnni)
bytes_isas := $(int_isas) $(if $(filter x86_64,$(ARCH)),amx)
packed_isas:= $(if $(filter x86_64,$(ARCH)),avx2 avx512 bf16)
kern_obj   := $(foreach i,$(kern_isas),$(B)/engine/num/kernels.$(i).o) $(foreach i,$(int_isas),$(B)/engine/num/integer.$(i).o) \
              $(foreach i,$(bytes_isas),$(B)/engine/num/integer_tiles.$(i).o $(B)/engine/num/packed_bytes.$(i).o) \
              $(foreach i,$(packed_isas),$(B)/engine/num/packed.$(i).o) $(if $(filter x86_64,$(ARCH)),$(call obj,$(amx_src)))

# The daemon's rooms, one folder each (docs/ARCHITECTURE.md). Each program's folder has one main.c; the rest of a room is a library,
# so that tests link what the programs do.
room       = $(sort $(wildcard daemon/$(1)/*.c daemon/$(1)/*/*.c daemon/$(1)/*/*/*.c))
rooms     := common link keys fetch ctl stage ringd
$(foreach r,$(rooms),$(eval $(r)_src := $(filter-out %/main.c,$(call room,$(r)))))
main_obj   = $(B)/daemon/$(1)/main.o
lib        = $(foreach r,$(1),$(B)/lib$(r).a)

.PHONY: all deps deps-system deps-fuzz demo check check-sanitized build-sanitized sanitized-programs threaded-programs test-programs build-fuzz fuzz fuzz-programs fuzz-rotate bench simulate netns chaos arm64 web deb system format lint install clean headers unit
all: $(B)/ringd $(B)/ringd-keys $(B)/ringd-fetch $(B)/ringd-stage $(B)/ringd-link $(B)/ringctl

# The dashboard, in the program: every file of web/, dygraphs and marked from their Debian packages; and what describes the API.
DYGRAPHS   ?= /usr/share/javascript/dygraphs
MARKED     ?= /usr/share/javascript/marked
MARKED_LICENCE ?= /usr/share/doc/libjs-marked/copyright
web_files  := $(sort $(wildcard web/*.html web/*.css web/*.js web/*.svg))
web_assets := $(patsubst /index.html=%,/=%,$(foreach f,$(web_files),/$(notdir $(f))=$(f))) \
              $(foreach f,dygraph.min.js dygraph.min.css,/$(f)=$(DYGRAPHS)/$(f)) /marked.min.js=$(MARKED)/marked.min.js \
              /marked.licence.txt=$(MARKED_LICENCE) /openapi.json=docs/openapi.json
web_obj    := $(B)/daemon/ringd/http/web_assets.o
$(web_obj:.o=.c): web/embed $(web_files) docs/openapi.json Makefile
	@mkdir -p $(@D)
	$(call say,EMBED,$@) web/embed $(web_assets) >$@.new && mv $@.new $@
$(web_obj): $(web_obj:.o=.c) $(web_files) docs/openapi.json
	$(call say,CC,$<) $(CC) $(BASE) $(inc_daemon) -c -o $@ $<

$(B)/libnet.a: $(call obj,$(net_src))
$(B)/libengine.a: $(call obj,$(engine_src)) $(kern_obj)
$(B)/libcommon.a: $(call obj,$(common_src))
$(B)/liblink.a: $(call obj,$(link_src))
$(B)/libkeys.a: $(call obj,$(keys_src))
$(B)/libfetch.a: $(call obj,$(fetch_src))
$(B)/libctl.a: $(call obj,$(ctl_src))
$(B)/libstage.a: $(call obj,$(stage_src))
$(B)/libringd.a: $(call obj,$(ringd_src)) $(web_obj)
$(B)/%.a:
	$(call say,AR,$@) rm -f $@ && ar rcs $@ $^

# Each program is its main.c and the libraries of the rooms it may see: what reaches into another room does not link.
# Names that libmicrohttpd and GnuTLS look for in the program (http_no_tls.c).
$(B)/ringd: LDBASE += $(addprefix -Wl$(comma)--export-dynamic-symbol=,_gnutls_global_init_skip gnutls_global_init gnutls_global_deinit) \
                      -Wl,--undefined=_gnutls_global_init_skip
$(B)/ringd: $(call main_obj,ringd) $(call lib,ringd common net engine)
	$(call say,LINK,$@) $(CC) $(LDBASE) -o $@ $^ $(NET_LIBS) $(DAEMON_LIBS) -lm
$(B)/ringd-stage: $(call main_obj,stage) $(call lib,stage common engine net)
	$(call say,LINK,$@) $(CC) $(LDBASE) -o $@ $^ $(ENGINE_LIBS) $(NET_LIBS) $(CELL_LIBS)
$(B)/ringd-link: $(call main_obj,link) $(call lib,link common net)
	$(call say,LINK,$@) $(CC) $(LDBASE) -o $@ $^ -levent_core -lmnl
$(B)/ringd-keys: $(call main_obj,keys) $(call lib,keys common net engine)
	$(call say,LINK,$@) $(CC) $(LDBASE) -o $@ $^ -lsodium $(CELL_LIBS)
$(B)/ringd-fetch: $(call main_obj,fetch) $(call lib,fetch common net engine)
	$(call say,LINK,$@) $(CC) $(LDBASE) -o $@ $^ -lcurl -lcrypto -lsodium -ljansson $(CELL_LIBS)
$(B)/ringctl: $(call main_obj,ctl) $(call lib,ctl common engine)
	$(call say,LINK,$@) $(CC) $(LDBASE) -o $@ $^ -lcurl -ledit -ljansson -linih -lm

$(B)/net/%.o: net/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<) $(CC) $(BASE) $(inc_net) -c -o $@ $<
$(B)/engine/num/kernels.%.o: $(kern_src)
	@mkdir -p $(@D)
	$(call say,CC,$< [$*]) $(CC) $(kern_flags) $(fast) $(kern_$*) $(kern_plain) -DKERNELS=kernels_$* $(inc_engine) -c -o $@ $<
# A multiplication and an addition stay two: all tables give the same bits. Of x86-64 no CPU of the last ten years computes with the
# base, which takes a compiler two minutes at -O3.
int_speed  = $(if $(filter base-x86_64,$(1)-$(ARCH)),-O1,$(fast))
$(B)/engine/num/integer.%.o: $(int_src)
	@mkdir -p $(@D)
	$(call say,CC,$< [$*]) $(CC) $(kern_flags) $(call int_speed,$*) -ffp-contract=off -Wno-psabi $(kern_$*) $(kern_plain) -DINTEGERS=int_kernels_$* $(inc_engine) -c -o $@ $<
$(B)/engine/num/integer_tiles.%.o: $(tiles_src)
	@mkdir -p $(@D)
	$(call say,CC,$< [$*]) $(CC) $(kern_flags) $(fast) -ffp-contract=off -Wno-psabi $(kern_$*) $(kern_plain) -DTILES=int_tiles_$* $(inc_engine) -c -o $@ $<
$(B)/engine/num/packed.%.o: $(packed_src)
	@mkdir -p $(@D)
	$(call say,CC,$< [$*]) $(CC) $(kern_flags) $(fast) $(kern_$*) $(kern_plain) -DPACKED=packed_kernels_$* $(inc_engine) -c -o $@ $<
$(B)/engine/num/packed_bytes.%.o: $(bytes_src)
	@mkdir -p $(@D)
	$(call say,CC,$< [$*]) $(CC) $(kern_flags) $(fast) -ffp-contract=off -Wno-psabi $(kern_$*) $(kern_plain) -DBYTES=packed_bytes_$* $(inc_engine) -c -o $@ $<
$(B)/engine/num/tile/packed_amx.o: $(amx_src)
	@mkdir -p $(@D)
	$(call say,CC,$<) $(CC) $(kern_flags) $(fast) $(kern_amx) $(kern_plain) $(inc_engine) -c -o $@ $<
$(B)/engine/num/gemm.o: BASE += -isystem $(BLASINC)
$(B)/engine/num/isa.o: BASE += $(foreach i,$(kern_isas),-DHAVE_KERNELS_$(i)=1) $(foreach i,$(int_isas),-DHAVE_INTEGERS_$(i)=1) $(foreach i,$(bytes_isas),-DHAVE_BYTES_$(i)=1) $(foreach i,$(packed_isas),-DHAVE_PACKED_$(i)=1)
$(B)/engine/%.o: engine/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<) $(CC) $(BASE) $(inc_engine) -c -o $@ $<
$(B)/daemon/%.o: daemon/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<) $(CC) $(BASE) $(inc_daemon) -c -o $@ $<

# --- tests: every tests/{unit,grad,golden,sim}/test_X.c is one program of its own ------------------------------
test_src  := $(shell find tests/unit tests/grad tests/golden tests/sim -name "test_*.c" | sort)
test_lib  := $(call obj,$(sort $(wildcard tests/lib/*.c)))
test_bin  := $(patsubst %.c,$(B)/%,$(test_src))
fuzz_src  := $(sort $(wildcard tests/fuzz/fuzz_*.c))
bench_bin := $(patsubst %.c,$(B)/%,$(sort $(wildcard tests/bench/bench_*.c)))

$(B)/tests/%.o: tests/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<) $(CC) $(BASE) $(inc_tests) -c -o $@ $<
all_libs  := $(call lib,ringd ctl stage link keys fetch common engine net)
# Writes what the test models are expected to say: called by their recipe.
expect    := $(B)/tests/data/models/expect
$(test_bin) $(bench_bin) $(expect): $(B)/%: $(B)/%.o $(test_lib) $(all_libs)
	$(call say,LINK,$@) $(CC) $(LDBASE) -o $@ $^ -lcmocka $(ENGINE_LIBS) $(NET_LIBS) $(DAEMON_LIBS) $(CELL_LIBS) $(bench_libs)
$(B)/tests/bench/bench_serve: bench_libs := -lcurl
$(B)/tests/unit/engine/num/test_gemm_blas $(B)/tests/unit/engine/num/test_product: LDBASE += -Wl,--wrap=isa_pick_packed
$(B)/tests/unit/engine/num/test_gemm_bf16: LDBASE += -Wl,--wrap=isa_pick_packed,--wrap=isa_pick_packed_bf16,--wrap=isa_pick_packed_amx
$(B)/tests/unit/daemon/stage/serve/test_serve $(B)/tests/unit/daemon/stage/serve/test_serve_ahead: LDBASE += -Wl,--wrap=draft_cost_saw
$(B)/tests/unit/daemon/fetch/test_power_cut $(B)/tests/unit/daemon/fetch/test_power_cut_file: LDBASE += $(foreach f,openat pwrite write ftruncate fsync fdatasync renameat unlinkat mkdirat boot_id syncer_ask syncer_forget,-Wl,--wrap=$(f))
$(B)/tests/unit/daemon/stage/plan/test_stage_take: LDBASE += $(foreach f,head_split_on_nodes stage_shared_note replicas_share_out layouts_find layouts_count layouts_at layouts_take layouts_free,-Wl,--wrap=$(f))
$(B)/tests/unit/engine/num/test_gemm_bytes: LDBASE += -Wl,--wrap=isa_pick_packed_bytes
# A whole cluster in one process, on a clock of its own: daemons' code, and what stands for their kernel in tests/sim/cluster.
simulator := $(B)/tests/sim/cluster/simulate
$(simulator): $(call obj,$(sort $(filter-out $(if $(SAN),%/heap.c),$(wildcard tests/sim/cluster/*.c)))) $(all_libs)
	$(call say,LINK,$@) $(CC) $(LDBASE) -Wl,--wrap=time,--wrap=fopen,--wrap=cgroup_find_room,--wrap=event_log_publish,--wrap=file_set_of_inputs,--wrap=held_disk_open,--wrap=memfd_create,--wrap=close,--wrap=json_dumps -o $@ $^ $(ENGINE_LIBS) $(NET_LIBS) $(DAEMON_LIBS) $(CELL_LIBS)

# --- checks ---------------------------------------------------------------------------------------------------------
unit: $(test_bin) $(simulator) $(B)/ringd-keys
	@tests/run unit $(B)
# SEEDS worlds of the cluster that is simulated, from FROM on.
SEEDS     ?= 100000
FROM      ?= 1
simulate: $(simulator)
	@$(simulator) -n $(SEEDS) -s $(FROM)
# Fuzz targets, one per decoder of what comes from outside. Plain builds link them with a main that replays what the corpus
# holds; `make fuzz` makes new inputs with clang's libFuzzer: RUNS for each target whose name has ONLY in it.
FUZZ_CC   ?= clang-14
RUNS      ?= 100000
fuzzer    := $(findstring fuzzer,$(SAN))
fuzz_bin  := $(patsubst %.c,$(B)/%,$(fuzz_src))
$(fuzz_bin): $(B)/%: $(B)/%.o $(B)/tests/lib/own_keys.o $(if $(fuzzer),,$(B)/tests/fuzz/replay/replay.o) $(all_libs)
	$(call say,LINK,$@) $(CC) $(LDBASE) $(if $(fuzzer),-fsanitize=fuzzer) -o $@ $^ $(ENGINE_LIBS) $(NET_LIBS) $(DAEMON_LIBS) $(CELL_LIBS) $(fuzz_libs)
$(B)/tests/fuzz/fuzz_events: fuzz_libs := -lcurl
fuzz-programs: $(fuzz_bin)
build-fuzz:
	@command -v $(FUZZ_CC) >/dev/null || { echo "make $@ needs $(FUZZ_CC): apt-get install $(FUZZ_DEPS), or name another with FUZZ_CC=" >&2; exit 1; }
	@$(MAKE) --no-print-directory B=build-fuzz CC=$(FUZZ_CC) SAN=fuzzer-no-link,address,undefined CFLAGS='-O1 -g1' fuzz-programs
fuzz: build-fuzz
	@tests/fuzz/run build-fuzz "$(RUNS)" "$(ONLY)"
# Four minutes of CPU for all targets, on all cores. The day and the number of commits say where it looks this time.
ROTATION  ?= $(shell echo $$(($$(date +%s) / 86400 + $$(git rev-list --count HEAD 2>/dev/null || echo 0))))
fuzz-rotate: build-fuzz
	@tests/fuzz/run build-fuzz rotate 240 $(ROTATION)
# What the tests in network namespaces send with.
netns_bin := $(addprefix $(B)/tests/netns/,flood member revoked stripe)
$(netns_bin): $(B)/%: $(B)/%.o $(B)/tests/lib/own_keys.o $(all_libs)
	$(call say,LINK,$@) $(CC) $(LDBASE) -o $@ $^ $(ENGINE_LIBS) $(NET_LIBS) $(DAEMON_LIBS) $(CELL_LIBS)
# A terminal for tests of what people see.
system_bin := $(addprefix $(B)/tests/system/lib/,pty slow crowd hang hub supervisor)
$(system_bin): %: %.o
	$(call say,LINK,$@) $(CC) $(LDBASE) -o $@ $^
# Random weights of a family of which there is no recorded model.
random    := $(B)/tests/system/lib/random_model
$(random): %: %.o $(test_lib) $(all_libs)
	$(call say,LINK,$@) $(CC) $(LDBASE) -o $@ $^ -lcmocka $(ENGINE_LIBS) $(NET_LIBS) $(DAEMON_LIBS) $(CELL_LIBS)
# A ringd-stage whose tasks sleep for as long as a schedule's picture says they take.
sleeping  := $(B)/tests/system/lib/sleeping
$(sleeping): %: %.o $(call main_obj,stage) $(call lib,stage common engine net)
	$(call say,LINK,$@) $(CC) $(LDBASE) -Wl,--wrap=task_run,--wrap=exchange_send -o $@ $^ $(ENGINE_LIBS) $(NET_LIBS) $(CELL_LIBS)
# A ringd-stage that tries to leave its cell, and one that enters none.
escapes   := $(B)/tests/system/lib/escapes
$(escapes): %: %.o $(call main_obj,stage) $(call lib,stage common engine net)
	$(call say,LINK,$@) $(CC) $(LDBASE) -Wl,--wrap=cell_enter,--wrap=head_plan -o $@ $^ $(ENGINE_LIBS) $(NET_LIBS) $(CELL_LIBS)
free      := $(B)/tests/bench/free
$(free): %: %.o $(call main_obj,stage) $(call lib,stage common engine net)
	$(call say,LINK,$@) $(CC) $(LDBASE) -Wl,--wrap=cell_enter -o $@ $^ $(ENGINE_LIBS) $(NET_LIBS) $(CELL_LIBS)
# Rings of network namespaces, cables pulled and plugged: needs root.
netns: all $(netns_bin)
	@tests/run netns $(B)
# Jobs of real daemons, SEEDS of them from FROM on, with four blows to each: needs root.
chaos: JOBS := $(if $(filter command line,$(origin SEEDS)),$(SEEDS),50)
chaos: all
	@tests/run chaos $(B) $(JOBS) $(FROM)
# Built for arm64, and run there by qemu: the arithmetic, and a node of a ring. Needs root, a cross compiler and qemu-user-static.
arm64: all
	@tests/arm64/run "$(BUILD_DEPS)" $(B)
# One kernel after the other, for qemu to count instructions of: no libraries, so that it starts with few.
loops     := $(B)/tests/arm64/kernel_loops
$(loops): %: %.o $(call lib,engine)
	$(call say,LINK,$@) $(CC) -static -no-pie $(LDFLAGS) -o $@ $^ -lm
# What answers for a model to the clients that npm has.
answer    := $(B)/tests/web/lib/answer
$(answer): %: %.o $(call lib,ringd common net engine)
	$(call say,LINK,$@) $(CC) $(LDBASE) -o $@ $^ -ljansson -lm
# The dashboard in a real browser: needs root, chromium and node. Clients of OpenAI's and Anthropic's APIs: need node.
web: all $(answer)
	@tests/run web $(B)

# Benches too, so that what breaks them is seen.
test-programs: $(test_bin) $(simulator) $(expect) $(fuzz_bin) $(netns_bin) $(system_bin) $(random) $(sleeping) $(escapes) $(bench_bin) $(free)
# Both begin with what the machine lacks; a sub-make then sees the compiler that may just have been installed.
check: deps
	@$(MAKE) --no-print-directory all test-programs
	@tests/demo/run $(B)
	@tests/run all $(B)
# Units and real daemons with AddressSanitizer and UndefinedBehaviorSanitizer; what has threads also with ThreadSanitizer. About nine
# minutes on two cores, half of them to build; WHOLE=1 runs more of the real daemons, and takes half an hour.
sanitized-programs: all $(test_bin) $(simulator) $(expect) $(system_bin) $(random)
threaded-programs: all $(system_bin) $(addprefix $(B)/tests/unit/,$(if $(filter threaded-programs,$(MAKECMDGOALS)),$(shell tests/run list-threaded)))
build-sanitized: deps
	@$(MAKE) --no-print-directory SAN=address,undefined CFLAGS='-O1 -g1' sanitized-programs
	@$(MAKE) --no-print-directory SAN=thread CFLAGS='-O1 -g1' threaded-programs
check-sanitized: build-sanitized
	@WHOLE=$(WHOLE) tests/run sanitized build-address-undefined build-thread
demo: deps
	@$(MAKE) --no-print-directory all
	@tests/demo/run $(B)
bench: all $(bench_bin) $(sleeping) $(free)
	@tests/bench/run $(B)

# --- what a bare Debian 12 lacks, installed only if missing ----------------------------------------------------------
BUILD_DEPS := gcc libc6-dev libevent-dev libsodium-dev libssl-dev libmicrohttpd-dev libopenblas-openmp-dev libmnl-dev \
              libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev libsqlite3-dev libseccomp-dev libcurl4-openssl-dev libedit-dev libinih-dev libcmocka-dev libjs-dygraphs libjs-marked curl jq iproute2 spin
# for `make fuzz`
FUZZ_DEPS   := clang-14 libclang-rt-14-dev libomp-14-dev
# for `make deb` and `make system`
SYSTEM_DEPS := ccache build-essential debhelper dh-apparmor apparmor lintian systemd systemd-container debootstrap qemu-system-x86 iproute2 procps jq
deps:
	@tests/install-deps $(BUILD_DEPS)
deps-fuzz:
	@tests/install-deps $(BUILD_DEPS) $(FUZZ_DEPS)
deps-system:
	@tests/install-deps $(BUILD_DEPS) $(SYSTEM_DEPS)

# --- style -----------------------------------------------------------------------------------------------------------
all_c := $(shell git ls-files "*.[ch]")
headers := $(patsubst %.h,$(B)/headers/%.ok,$(shell find net engine daemon -name "*.h" | sort))
format:
	clang-format -i $(all_c)
headers: $(headers)
$(B)/headers/net/%.ok: net/%.h
	@mkdir -p $(@D)
	$(call say,HEADER,$<) $(CC) $(filter-out -MMD -MP,$(BASE)) $(inc_net) -fsyntax-only -x c $< && touch $@
$(B)/headers/engine/%.ok: engine/%.h
	@mkdir -p $(@D)
	$(call say,HEADER,$<) $(CC) $(filter-out -MMD -MP,$(BASE)) $(inc_engine) -fsyntax-only -x c $< && touch $@
$(B)/headers/daemon/%.ok: daemon/%.h
	@mkdir -p $(@D)
	$(call say,HEADER,$<) $(CC) $(filter-out -MMD -MP,$(BASE)) $(inc_daemon) -fsyntax-only -x c $< && touch $@
lint: headers
	@tests/lint

# Into a folder of its own below the build's: what comes from the option tables, and the units with the paths of PREFIX.
$(B)/ringd.conf: systemd/make-conf docs/options.awk $(B)/ringd
	$(call say,MAKE,$@) systemd/make-conf $(B) >$@.new && mv $@.new $@
$(B)/units/%: systemd/%.in
	@mkdir -p $(@D)
	$(call say,MAKE,$@) sed 's|@SBINDIR@|$(PREFIX)/sbin|; s|@BINDIR@|$(PREFIX)/bin|' $< >$@

units := $(B)/units/ringd.service $(B)/units/ringd-link.service systemd/ringd.socket
to    := $(DESTDIR)$(PREFIX)
$(B)/ringctl.%: $(B)/ringctl
	$(call say,MAKE,$@) $< completion $* >$@.new && mv $@.new $@
install: all $(B)/ringd.conf $(B)/ringctl.bash $(B)/ringctl.fish $(B)/ringctl.zsh
	@rm -rf $(B)/units && $(MAKE) --no-print-directory $(filter $(B)/%,$(units))
	install -d $(to)/sbin $(to)/bin $(to)/libexec/ringd $(to)/share/man/man1 $(to)/share/man/man5 $(to)/share/man/man8 \
	    $(to)/share/bash-completion/completions $(to)/share/fish/vendor_completions.d $(to)/share/zsh/vendor-completions \
	    $(to)/share/ringd/tiny-llama $(to)/lib/sysusers.d $(to)/lib/systemd/catalog $(to)/lib/tmpfiles.d $(to)/lib/modules-load.d \
	    $(DESTDIR)$(UNITDIR) $(DESTDIR)$(SYSCONFDIR)/ringd
	install $(B)/ringd $(B)/ringd-link $(to)/sbin/
	install $(B)/ringctl $(to)/bin/
	install $(B)/ringd-keys $(B)/ringd-fetch $(B)/ringd-stage $(to)/libexec/ringd/
	install -m 644 docs/ringctl.1 $(to)/share/man/man1/
	install -m 644 docs/ringd.conf.5 $(to)/share/man/man5/
	install -m 644 docs/ringd.8 docs/ringd-link.8 $(to)/share/man/man8/
	install -m 644 $(B)/ringctl.bash $(to)/share/bash-completion/completions/ringctl
	install -m 644 $(B)/ringctl.fish $(to)/share/fish/vendor_completions.d/ringctl.fish
	install -m 644 $(B)/ringctl.zsh $(to)/share/zsh/vendor-completions/_ringctl
	install -m 644 $(filter-out %recipe %.py %README.md,$(wildcard share/tiny-llama/*)) $(to)/share/ringd/tiny-llama/
	install -m 644 $(units) $(DESTDIR)$(UNITDIR)/
	install -m 644 systemd/ringd.sysusers $(to)/lib/sysusers.d/ringd.conf
	install -m 644 systemd/ringd.tmpfiles $(to)/lib/tmpfiles.d/ringd.conf
	install -m 644 systemd/ringd.catalog $(to)/lib/systemd/catalog/
	install -m 644 systemd/ringd.modules-load $(to)/lib/modules-load.d/ringd.conf
	[ -e $(DESTDIR)$(SYSCONFDIR)/ringd/ringd.conf ] || install -m 644 $(B)/ringd.conf $(DESTDIR)$(SYSCONFDIR)/ringd/

# The Debian package, and three booted containers that live through what a user does with it (as root).
deb:
	@systemd/make-deb $(VERSION) $(DEB_ARCH)
system: deps-system
	@$(MAKE) --no-print-directory deb $(escapes)
	@tests/run boot $(B)
clean:
	rm -rf build build-*

-include $(shell find $(B) -name '*.d' 2>/dev/null)
