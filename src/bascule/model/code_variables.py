"""Variables that put other code into a program: libraries, modules, start files, hooks.

Who may set them for a program decides what it does, whatever program it is. The list is of names
that are known to do so; a server's own settings are none of them. Below: nothing. Above: a node
refuses them where only listed programs are started; what a credential is given to includes them.
"""

from __future__ import annotations

import re

# Of these families every variable counts, except for those that are known to be harmless.
_PREFIXES = (
    "LD_",
    "DYLD_",
    "BASH_FUNC_",
    "PYTHON",
    "NODE_",
    "NPM_",
    "YARN_",
    "PNPM_",
    "BUN_",
    "DENO_",
    "UV_",
    "PIP_",
    "PIPX_",
    "POETRY_",
    "CONDA_",
    "PERL",
    "RUBY",
    "GEM_",
    "BUNDLE_",
    "PHP",
    "LUA_",
    "JULIA_",
    "R_",
    "ERL_",
    "GIT_",
    "CARGO_",
    "RUSTUP_",
    "CORECLR_",
    "COMPLUS_",
    "DOTNET_",
    "OPENSSL_",
    "XDG_",
)
_HARMLESS = frozenset(
    {
        "PYTHONUNBUFFERED",
        "PYTHONIOENCODING",
        "PYTHONUTF8",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONHASHSEED",
        "PYTHONFAULTHANDLER",
        "PYTHONSAFEPATH",
        "PYTHONNOUSERSITE",
        "PYTHONOPTIMIZE",
        "PYTHONVERBOSE",
        "PYTHONDEBUG",
        "NODE_ENV",
        "NODE_NO_WARNINGS",
        "NODE_DISABLE_COLORS",
        "NODE_DEBUG",
        "NPM_TOKEN",
        "UV_NO_PROGRESS",
        "UV_OFFLINE",
        "PIP_NO_INPUT",
        "GIT_TERMINAL_PROMPT",
        "GIT_AUTHOR_NAME",
        "GIT_AUTHOR_EMAIL",
        "GIT_AUTHOR_DATE",
        "GIT_COMMITTER_NAME",
        "GIT_COMMITTER_EMAIL",
        "GIT_COMMITTER_DATE",
        "GIT_TOKEN",
        "XDG_SESSION_ID",
    }
)
_NAMES = frozenset(
    {
        "PATH",
        "HOME",
        "SHELL",
        "ENV",
        "BASH_ENV",
        "BASHOPTS",
        "SHELLOPTS",
        "PROMPT_COMMAND",
        "PS4",
        "IFS",
        "ZDOTDIR",
        "GCONV_PATH",
        "LOCPATH",
        "GLIBC_TUNABLES",
        "CLASSPATH",
        "JAVA_HOME",
        "GOFLAGS",
        "GOPROXY",
        "GOROOT",
        "GOPATH",
        "GOENV",
        "GONOSUMDB",
        "GOTOOLCHAIN",
        "MAKEFLAGS",
        "MAKEFILES",
        "RUSTC",
        "RUSTC_WRAPPER",
        "RUSTFLAGS",
        "VIRTUAL_ENV",
        "PAGER",
        "MANPAGER",
        "EDITOR",
        "VISUAL",
        "BROWSER",
        "LESSOPEN",
        "LESSCLOSE",
        "TCLLIBPATH",
        "TCL_LIBRARY",
        "GTK_MODULES",
        "GTK_PATH",
        "GIO_EXTRA_MODULES",
        "GDK_PIXBUF_MODULE_FILE",
        "TERMINFO",
        "KUBECONFIG",
        "DOCKER_HOST",
        "DOCKER_CONFIG",
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
    }
)
_SHAPES = re.compile(
    r".*PRELOAD.*|.*(?:LIBRARY|PLUGIN|PLUGINS|MODULE|MODULES)_PATH|.*_?(?:OPTIONS|OPTS)|"
    r".*_(?:ASKPASS|PAGER|EDITOR|STARTUP_HOOKS|SSH_COMMAND)",
)


def loads_code(name: str) -> bool:
    """Say whether a variable is known to bring code or its whereabouts into a program."""
    upper = name.upper()
    if upper in _HARMLESS:
        return False
    named = upper in _NAMES or upper.startswith(_PREFIXES)
    return named or _SHAPES.fullmatch(upper) is not None
