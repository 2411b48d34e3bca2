# Two commands for people: `make quickstart` and `make test`. Each makes the environment it needs.
PYTHON ?= python3
PIP_FLAGS ?= --quiet --disable-pip-version-check

.PHONY: quickstart test lint types unit wheel examples clean

quickstart: .venv/done
	.venv/bin/critic-prm quickstart

test: lint types unit wheel

lint: .venv-dev/done
	.venv-dev/bin/ruff check .
	.venv-dev/bin/ruff format --check .

types: .venv-dev/done
	.venv-dev/bin/mypy

unit: .venv-dev/done
	.venv-dev/bin/python -m pytest -n 2

# The built wheel in an environment of its own, tried from another folder: what an editable install would hide shows here.
wheel: .venv-dev/done
	rm -rf dist .venv-wheel
	.venv-dev/bin/python -m build --wheel --no-isolation > /dev/null
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/pip install $(PIP_FLAGS) -c constraints.txt dist/*.whl
	sh tests/wheel.sh .venv-wheel/bin

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

clean:
	rm -rf .venv .venv-dev .venv-wheel dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis quickstart
