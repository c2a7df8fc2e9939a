"""Whether a name says that its value is a credential, and whether the value may be one.

One rule for text (``token = …``) and for JSON members. A name is read word by word: ``api_key`` and
``dbPassword`` name credentials, ``tokenizer``, ``api_key_id`` and ``nextPageToken`` do not. A value
that is made of known words, like ``base64v2``, or that plainly is something else (a path, a date, a
reference) is none, whatever its name; for the rest entropy decides.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import lru_cache


def entropy(value: str) -> float:
    """Shannon entropy in bits per character."""
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values())


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# --- names

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PASSWORDS = ("password", "passwd", "passphrase")
_NOUNS = (*_PASSWORDS, "secret", "token", "credential", "apikey", "accesskey", "privatekey")
_JOINED = ("key", "value", "hash", "string", "data", "base")  # written on without a break
_KEY_OF = frozenset({"api", "access", "private", "secret"})
# What stands behind the noun says that the value is about a credential, and is none.
_ABOUT = _words(
    """
    action age alg algorithm arn at attempts audience auth authentication bucket budget budgets
    button bytes callback changed char chars class client column complexity config configuration
    cost count counter counts created date day decoder description dialog dir directory disabled
    duration email enabled encoder encoding endpoint entropy env error errors event exp expiration
    expire expired expires expiry field fields file filename files folder form format function
    generator getter grant handler hasher header headers help helper hint host hour icon id
    identifier ids index input issued issuer issuers kind kinds label labels len length level
    lifetime limit limits link list location manager managers map max message method methods min
    minute mode model name names namespace number offset option options order owner page param
    parameter params path paths pattern per period placeholder policies policy position prefix
    price prompt protocol provider providers rate ref reference references regex region request
    required requirements reset response role rotation rule rules schema scheme scope scopes
    screen second service setter size source start state status stop storage store strategy stream
    strength style suffix table tag template time timeout timestamp title ttl type types units
    updated uri url urls usage used user username validation validator variable version versions
    view window
    """
)
# Before "token" these mean a place in a list, or a piece of a model's text.
_OTHER_TOKENS = _words(
    """
    added bos cached cancel cancellation cls completion continuation count csrf cursor decoder
    design embedding encoder end eos eot fim image input mask max min next num number output pad
    page prompt public punctuation reasoning sep special start stop sync syntax text total unk
    unknown xsrf
    """
)


@lru_cache(maxsize=1024)
def sensitive_key(key: str) -> bool:
    """Whether a name says that its value is a credential."""
    words = [word.lower() for word in _WORD.findall(key[-128:])]
    at = next((n for n in reversed(range(len(words))) if _names_one(words, n)), None)
    if at is None or "public" in words:
        return False
    if not _ABOUT.isdisjoint(words[at + 1 :]):
        return False
    return not (_noun(words[at]).endswith("token") and _is_other_token(words, at))


def is_password(key: str) -> bool:
    """Whether a name says that its value was chosen by a person, who likes words."""
    return any(noun in key.lower() for noun in ("passw", "passphrase"))


def _names_one(words: list[str], at: int) -> bool:
    noun = _noun(words[at])
    if noun == "key":
        return at > 0 and words[at - 1] in _KEY_OF
    return noun.endswith(_NOUNS)


def _noun(word: str) -> str:
    for end in _JOINED:
        if word.removesuffix(end).endswith(_NOUNS):
            return word.removesuffix(end)
    return word.removesuffix("s")


def _is_other_token(words: list[str], at: int) -> bool:
    joined = _noun(words[at]).removesuffix("token")
    return joined in _OTHER_TOKENS or (at > 0 and words[at - 1] in _OTHER_TOKENS)


# --- values

_PLACEHOLDER = re.compile(
    r"(?i)^(?:[<\[{]|&lt;|\$[{(A-Z]|%[(sd]|%[A-Z_]{2,40}%|\*\*|\.\.|x{3,}|-{3,}|your|my[_-]|some[_-]|"
    r"the[_-]|example|sample|change|replace|insert|placeholder|dummy|fake|test|todo|none|null|true|"
    r"false|undefined|redacted|masked|hidden|os\.|self\.|env\.|process\.|settings\.|config\.|getenv)"
)
_PLACEHOLDER_WORDS = re.compile(
    r"(?i)example|placeholder|changeme|redacted|\*\*\*|xxxx|1234567890|\.\.\."
)
_COMMON = re.compile(
    r"(?i)(?:pass|passwd|password|passphrase|pwd|secret|token|api_?key|key|user|username)"
)
# Letter beside digit: a random value has many such places, an identifier has few.
_SWITCH = re.compile(r"[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z])")
_SYMBOLS = frozenset("!@#$%^&*?~|+")
_ELSEWHERE = re.compile(
    r"^(?:[./~]|[A-Za-z_][A-Za-z0-9_]{0,60}[.(\[]|https?:|[a-z][a-z0-9+.-]{1,20}://|arn:|urn:|"
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ]|$)|v?[0-9]{1,4}\.[0-9]{1,4}\.[0-9]|"
    r"[A-Za-z0-9_.+-]{1,64}@[A-Za-z0-9-]{1,64}(?:\.[A-Za-z0-9-]{1,64}){1,8}$|"
    r"[A-Za-z]{1,40}[?:]{1,3}$)"  # the label of a field
)
# Names of things: words in lower case or in capitals, joined, with a number at the end of some.
_NAMES = re.compile(
    r"^(?:[a-z]{2,24}[0-9]{0,2}(?:[_.:/-][a-z]{1,24}[0-9]{0,3}){1,12}(?:[_.:/-][0-9]{1,4})?"
    r"|[A-Z]{2,24}[0-9]{0,3}(?:_[A-Z]{1,24}[0-9]{0,3}){1,12})$"
)
_PLAIN = re.compile(r"[A-Za-z0-9_.:-]{1,256}")
_MAX_NUMBER, _SHORTEST_WORD = 5, 3
_KNOWN = _words(
    """
    access account adc admin aes alpha amazon anthropic api apikey app application argon array
    ascii assertion async at auth authentication authenticator authorization aws azure base basic
    bcrypt bearer beta bit bits block bool boolean bot browser build bundle byte bytes cache cbc
    ccm cert certificate chacha chain char chars cipher cl class claude client cloud code config
    cookie credential credentials crypto csrf curve data database date db decoder default demo der
    dev device dict digest dsa ec ecb ecdh ecdsa ed encoder encoding engine env error es exchange
    factory fernet field file form format gcm gcp generic github gitlab google gpt grant group
    handler hash header hex hmac holder host hs html http https id identity imap implicit index
    int integer interface issuer js json jwe jwk jwks jws jwt k kdf kerberos key keyring keys
    keystore kind kms kube large ldap legacy level list literal local long mac manager map md
    medium memory microsoft mini mode model mongo mysql name net noop ntlm null number o oauth
    object oidc okta openai openid option optional options otp param parameter parser password
    path pbkdf pem person phone pkce pkcs plain postgres private prod production profile provider
    ps pss public python rc redis ref refresh region release request response role root rs rsa
    saml sasl schema scheme scope scrypt secret secrets self server service session set sha sign
    signature signed signer signing simple small smtp space spec spnego sql ssh ssl staging
    standard state static storage store str string subject suite symmetric tcp text tls token
    tokenizer tokens totp triple tuple turbo twenty type types udp uint union unit uri url user
    username utf uuid v value values vault version web webhook word x xml yaml zip
    """
)


def placeholder(value: str) -> bool:
    """Whether a value is plainly a stand-in: ``<token>``, ``${X}``, ``changeme``, ``xxxx``."""
    return (
        _COMMON.fullmatch(value) is not None
        or _PLACEHOLDER.match(value) is not None
        or has_placeholder(value)
    )


def has_placeholder(value: str) -> bool:
    """Whether a value holds a word that only stand-ins hold."""
    return _PLACEHOLDER_WORDS.search(value) is not None


def secret_value(key: str, value: str, *, quoted: bool) -> bool:
    """Whether the right-hand side of ``key = …`` looks like a credential."""
    value = value.split(None, 1)[0] if value and not value.isspace() else ""  # prose is none
    if len(value) < 8 or not _is_mixed(value, quoted=quoted):
        return False
    if placeholder(value) or _ELSEWHERE.match(value):
        return False
    return is_password(key) or not (_NAMES.match(value) or _is_worded(value))


def _is_mixed(value: str, *, quoted: bool) -> bool:
    switches = len(_SWITCH.findall(value))
    if quoted:
        return (switches >= 1 or not _SYMBOLS.isdisjoint(value)) and entropy(value) >= 2.8
    return switches >= 2 and entropy(value) >= 3.0


def _is_worded(value: str) -> bool:
    """Whether a value is made of known words and short numbers, with few letters between."""
    if not _PLAIN.fullmatch(value):
        return False
    short = letters = 0
    for part in _WORD.findall(value):
        if part.isdigit():
            if len(part) > _MAX_NUMBER:
                return False
        elif part.lower() not in _KNOWN:
            return False
        else:
            letters += len(part)
            short += len(part) if len(part) < _SHORTEST_WORD else 0
    return 2 * short <= letters
