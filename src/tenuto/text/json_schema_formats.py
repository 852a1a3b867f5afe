"""The string formats that grammars enforce, as regular expressions of the whole string.

Where a format's text names a calendar or a count, so does the expression: 29 February only in leap years. A few valid
spellings are never written, and said so beside them: what is written is always valid.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """`note` says which valid strings are left out, if any."""

    pattern: str
    source: str  # where the format is defined
    max_length: int | None = None
    note: str = ""


_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DAY = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_DATE = f"(?:{_YEAR}-{_DAY}|{_LEAP_YEAR}-02-29)"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"

_IN_DAY = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_IN_YEAR = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"

_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_H16 = "[0-9A-Fa-f]{1,4}"
_LS32 = f"(?:{_H16}:{_H16}|{_IPV4})"


def _ipv6() -> str:
    """RFC 3986, section 3.2.2: one option for each place of the `::`, and one without."""
    options = [f"(?:{_H16}:){{6}}{_LS32}"]
    for before in range(8):
        left = "" if before == 0 else f"(?:(?:{_H16}:){{0,{before - 1}}}{_H16})?"
        after = 5 - before
        right = f"(?:{_H16}:){{{after}}}{_LS32}" if after >= 0 else {-1: _H16, -2: ""}[after]
        options.append(f"{left}::{right}")
        if before == 7 or after == -2:
            break
    return "(?:" + "|".join(options) + ")"


_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"

_PCHAR = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_PCHAR_NO_COLON = r"(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})"
_AUTHORITY = (
    r"(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?"
    rf"(?:\[{_ipv6()}\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{{2}})*)(?::[0-9]{{0,5}})?"
)
_QUERY = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
_ABSOLUTE = rf"//{_AUTHORITY}(?:/{_PCHAR}*)*|/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?"
_URI = rf"[A-Za-z][A-Za-z0-9+.-]*:(?:{_ABSOLUTE}|{_PCHAR}+(?:/{_PCHAR}*)*|){_QUERY}"
_RELATIVE = rf"(?:{_ABSOLUTE}|{_PCHAR_NO_COLON}+(?:/{_PCHAR}*)*|){_QUERY}"
_POINTER = "(?:/(?:[^/~]|~[01])*)*"

FORMATS: dict[str, Format] = {
    "date": Format(_DATE, "RFC 3339", note="not the year 0000"),
    "time": Format(_TIME, "RFC 3339", note="no leap seconds, at most 9 digits of a second, T and Z in capitals"),
    "date-time": Format(f"{_DATE}T{_TIME}", "RFC 3339", note="as `date` and `time`"),
    "duration": Format(f"P(?:{_IN_YEAR}(?:{_IN_DAY})?|{_IN_DAY}|[0-9]+W)", "RFC 3339, appendix A"),
    "email": Format(
        rf"{_ATOM}(?:\.{_ATOM})*@{_LABEL}(?:\.{_LABEL})*", "RFC 5321", 254, "no quoted names, no address in brackets"
    ),
    "hostname": Format(rf"{_LABEL}(?:\.{_LABEL})*", "RFC 1123", 253),
    "ipv4": Format(_IPV4, "RFC 2673"),
    "ipv6": Format(_ipv6(), "RFC 4291"),
    "uuid": Format("[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", "RFC 4122"),
    "uri": Format(_URI, "RFC 3986", note="no IPvFuture hosts, ports of at most 5 digits"),
    "uri-reference": Format(f"(?:{_URI}|{_RELATIVE})", "RFC 3986", note="as `uri`"),
    "json-pointer": Format(_POINTER, "RFC 6901"),
    "relative-json-pointer": Format(f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})", "draft-bhutton-relative-json-pointer"),
}
