# For hands that type make; dev.py does the work.
PYTHON ?= python3

.PHONY: setup demo test
setup demo test:
	$(PYTHON) dev.py $@
