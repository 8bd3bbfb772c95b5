"""What the image is made of, and where its packages come from."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rdmabench.errors import SetupError
from rdmabench.lab import recipe

_DEB822 = """\
# the system's own
Types: deb deb-src
URIs: http://archive.invalid/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://archive.invalid/debian
Suites: bookworm-backports
Components: main

Enabled: no
Types: deb
URIs: http://disabled.invalid/debian
Suites: bookworm
Components: main
"""


def _os_release(path: Path, text: str) -> Path:
    file = path / "os-release"
    file.write_text(text, encoding="utf-8")
    return file


def _apt(path: Path, files: dict[str, str]) -> Path:
    (path / "sources.list.d").mkdir()
    for name, text in files.items():
        (path / name).write_text(text, encoding="utf-8")
    return path


def test_the_digest_changes_with_everything_that_makes_the_image(tmp_path: Path) -> None:
    made = recipe.current(_os_release(tmp_path, "ID=debian\nVERSION_CODENAME=bookworm\n"))
    others = [
        dataclasses.replace(made, release="trixie"),
        dataclasses.replace(made, packages=(*made.packages, "tcpdump")),
        dataclasses.replace(made, guest_files=(*made.guest_files[1:], ("init", "0" * 64))),
    ]
    digests = {item.digest for item in (made, *others)}
    assert len(digests) == 4
    assert dataclasses.replace(made).digest == made.digest


def test_another_distribution_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="this is fedora"):
        recipe.debian_release(_os_release(tmp_path, 'ID="fedora"\nVERSION_CODENAME=""\n'))


def test_only_enabled_sources_of_this_release_are_taken(tmp_path: Path) -> None:
    apt = _apt(tmp_path, {"sources.list.d/debian.sources": _DEB822})
    text = recipe.debian_sources(apt, "bookworm")
    assert text.count("Types:") == 1
    assert "Suites: bookworm bookworm-updates" in text
    assert "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg" in text
    assert "#" not in text


def test_one_line_sources_keep_their_options_and_foreign_archives_stay_out(tmp_path: Path) -> None:
    apt = _apt(
        tmp_path,
        {
            "sources.list": "deb [arch=amd64,i386 signed-by=/k.gpg] https://a.invalid/d bookworm"
            " main contrib # ours\ndeb-src https://a.invalid/d bookworm main\n",
            "sources.list.d/vendor.list": "deb https://vendor.invalid/ofed bookworm stable\n",
            "sources.list.d/old.list.save": "deb https://old.invalid/d bookworm main\n",
        },
    )
    assert recipe.debian_sources(apt, "bookworm").splitlines() == [
        "Types: deb",
        "URIs: https://a.invalid/d",
        "Suites: bookworm",
        "Components: main contrib",
        "Architectures: amd64 i386",
        "signed-by: /k.gpg",
    ]


def test_a_machine_without_a_debian_source_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no source of Debian bookworm"):
        recipe.debian_sources(_apt(tmp_path, {}), "bookworm")


def test_of_apts_settings_those_about_reaching_an_archive_are_taken() -> None:
    dump = (
        'APT::Architecture "amd64";\nAcquire::http::Proxy "http://proxy.invalid:3142";\n'
        'Acquire::https::CAInfo "/etc/ssl/ca.pem";\nAcquire::cdrom::mount "/media/cdrom/";\n'
        'Acquire::Retries "3";\n'
    )
    assert recipe.apt_settings(dump).splitlines() == [
        'Acquire::http::Proxy "http://proxy.invalid:3142";',
        'Acquire::https::CAInfo "/etc/ssl/ca.pem";',
        'Acquire::Retries "3";',
    ]
