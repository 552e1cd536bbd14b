# The four commands. CMake does the work: `cmake --list-presets` shows the builds, CONTRIBUTING.md the rest.
PRESET ?= release
BUILD := build/$(PRESET)
JOBS := $(shell nproc)
CMAKE_ARGS ?=

.PHONY: all run test bench format format-check clean
all: $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS) -- --quiet

$(BUILD)/build.ninja: | setup
	@echo "configuring $(BUILD)"
	@cmake --preset $(PRESET) $(CMAKE_ARGS) > /dev/null

.PHONY: setup
setup:
	@$(if $(findstring WEFT_SYSROOT,$(CMAKE_ARGS)),true,cmake/setup.sh $(if $(filter test,$(MAKECMDGOALS)),relacy-dev))

# A real model answers a question, whole decode steps as tasks; then its MLP blocks on two devices, under every strategy, checked
# against float64, as a table.
QUESTION ?= What is the capital of France?
run: $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS) --target weft_cli -- --quiet
	@model=$$(cmake/model.sh) && if [ -n "$$model" ]; then \
		echo "SmolLM2-135M-Instruct is asked: $(QUESTION)"; \
		$(BUILD)/weft generate --model "$$model" --chat --prompt "$(QUESTION)" --max-tokens 60 && echo || exit; \
	fi && $(BUILD)/weft tour $${model:+--model "$$model"} --trace build/weft.trace.json

test: all
	@cd $(BUILD) && ctest --output-on-failure -j $(JOBS)

bench: all
	@$(BUILD)/weft bench plan
	@$(BUILD)/weft bench gemm
	@$(BUILD)/weft bench queue

SOURCES = $(shell git ls-files '*.h' '*.c' '*.cpp' '*.cu' '*.cuh')
format:
	@clang-format -i $(SOURCES)

format-check:
	@clang-format --dry-run --Werror $(SOURCES)

clean:
	rm -rf build
