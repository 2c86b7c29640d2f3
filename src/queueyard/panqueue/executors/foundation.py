"""What Python itself needs to run: the ground under every sandbox. It holds programs and libraries, and no data."""

from __future__ import annotations

from pathlib import Path
import sys

_SYSTEM = (
    *("/lib", "/lib32", "/lib64", "/bin", "/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/bin"),
    *("/usr/sbin", "/usr/share", "/usr/local/lib", "/usr/local/bin", "/usr/local/share"),
)
#: not all of /etc/ssl: it has a folder of private keys
_SETTINGS = (
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates"),
    *("/etc/pki/tls/certs", "/etc/pki/ca-trust"),
)
#: a Python that is installed in one of these has its libraries in what is named above
_SHARED_PREFIXES = {"/", "/usr", "/usr/local"}
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_PACKAGES = {"site-packages", "dist-packages"}
_OURS = Path(__file__).parents[2]


def readable() -> list[str]:
    """Files and folders that a child may always read."""
    installed = [path for path in sys.path if Path(path).name in _PACKAGES]
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix} - _SHARED_PREFIXES
    wanted = [*_SYSTEM, *_SETTINGS, *sorted(prefixes), *installed, str(_OURS)]
    return [path for path in dict.fromkeys(wanted) if Path(path).exists()]


def devices() -> list[str]:
    """Devices that are harmless; in namespaces there are no others."""
    return [path for path in _DEVICES if Path(path).exists()]


def loaders() -> list[str]:
    """Programs that the kernel starts to load other programs."""
    root = Path("/")
    found = [*root.glob("lib*/ld-*.so*"), *root.glob("lib/*/ld-*.so*")]
    return sorted({str(path.resolve()) for path in found})
