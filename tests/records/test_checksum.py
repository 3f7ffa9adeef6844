"""The checksum, without what its package brings along."""

from __future__ import annotations

import subprocess
import sys

import crc32c as package

from moldau.records.checksum import crc32c


def test_it_is_that_of_the_package() -> None:
    assert crc32c(b"123456789") == 0xE3069283 == package.crc32c(b"123456789")
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283


def test_a_broker_does_not_import_what_only_the_packages_command_line_needs() -> None:
    program = (
        "import sys, moldau.broker.server\n"
        "print(sorted({'argparse', 'crc32c', 'importlib.metadata'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[]"
