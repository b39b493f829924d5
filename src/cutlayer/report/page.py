"""A self-contained HTML page: it needs no network, no server, and no other file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from cutlayer.report.palette import Palette, colours, escape, plot_css
from cutlayer.report.svg import draw
from cutlayer.reproduce.results import VERDICTS, Holds, Result, Table

_LONG = 40
"""Tables with more rows are folded."""

# Nothing may be fetched, whatever a name in the data says.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

_CSS = """
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}
main{max-width:1180px;margin:0 auto;padding:24px 20px 60px}h1{font-size:26px;margin:0 0 4px}
h2{font-size:21px;margin:44px 0 6px;padding-top:14px;border-top:1px solid var(--faint)}
h3{font-size:16px;margin:26px 0 8px}p.about{color:var(--muted);margin:0 0 14px}
nav a{margin-right:14px}a{color:var(--c1)}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,350px),1fr));gap:18px 22px}
.plots svg{width:100%;height:auto;display:block}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{padding:4px 10px;border-bottom:1px solid var(--faint);text-align:left;vertical-align:top}
th{font-weight:600}td.n,th.n{text-align:right}td{white-space:nowrap}
tbody tr:hover{background:color-mix(in srgb,var(--c1) 9%,transparent)}
ul.claims{padding:0;list-style:none}ul.claims li{margin:10px 0;padding-left:12px;
border-left:4px solid var(--c7)}
ul.claims li.yes{border-color:var(--c3)}ul.claims li.no{border-color:var(--c2)}
ul.claims li.partly{border-color:var(--c5)}ul.claims small{color:var(--muted);display:block}
pre,code{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{overflow-x:auto;padding:10px 12px;border:1px solid var(--faint);border-radius:6px;margin:8px 0}
details{margin:10px 0}summary{cursor:pointer;color:var(--muted)}
#tip{position:fixed;pointer-events:none;white-space:pre;font-size:12.5px;line-height:1.4;padding:6px 9px;
border-radius:6px;background:var(--ink);color:var(--paper);opacity:0;z-index:9;max-width:90vw}
@media print{details{display:block}}
"""

_CLASSES: dict[Holds, str] = {True: "yes", False: "no", "partly": "partly", "undecided": "undecided"}

# Without it, browsers show the same values themselves, a little later.
_SCRIPT = """
const tip=document.getElementById('tip');
for(const t of document.querySelectorAll('svg title')){t.parentNode.dataset.tip=t.textContent;t.remove()}
const show=e=>{const g=e.target.closest&&e.target.closest('[data-tip]');if(!g){tip.style.opacity=0;return}
tip.textContent=g.dataset.tip;const r=g.getBoundingClientRect(),b=tip.getBoundingClientRect();
let x=r.right+8,y=r.top-b.height/2;if(x+b.width>innerWidth)x=r.left-b.width-8;
tip.style.left=Math.max(4,x)+'px';tip.style.top=Math.min(innerHeight-b.height-4,Math.max(4,y))+'px';
tip.style.opacity=1};
addEventListener('mouseover',show);addEventListener('scroll',()=>{tip.style.opacity=0});
"""


def page(results: Sequence[Result], title: str = "cutlayer report") -> str:
    """The page of all results."""
    palette = Palette([s.name for s in plot.series] for result in results for plot in result.plots)
    parts = [part for place, result in enumerate(results) for part in _section(result, place, palette)]
    links = "".join(f'<a href="#r{i}">{escape(result.title)}</a>' for i, result in enumerate(results))
    contents = f"<nav>{links}</nav>" if len(results) > 1 else ""
    theme = f":root{{color-scheme:light dark;{colours(False)}}}"
    theme += f"@media(prefers-color-scheme:dark){{:root{{{colours(True)}}}}}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        # Browsers ask for an icon where a page has none.
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{theme}{plot_css()}{_CSS}</style></head><body><main>"
        f"<h1>{escape(title)}</h1>{contents}{''.join(parts)}</main>"
        f'<div id="tip" role="status"></div><script>{_SCRIPT}</script></body></html>\n'
    )


def _section(result: Result, place: int, palette: Palette) -> Iterator[str]:
    yield f'<section><h2 id="r{place}">{escape(result.title)}</h2>'
    if result.scale:
        yield f'<p class="about">{escape(result.name)}, scale: {escape(result.scale)}</p>'
    if result.claims:
        yield '<ul class="claims">'
        for claim in result.claims:
            kind = _CLASSES[claim.holds]
            yield f'<li class="{kind}">{escape(claim.claim)}: <strong>{VERDICTS[claim.holds]}</strong>'
            yield f"<small>{escape(claim.evidence)}</small></li>"
        yield "</ul>"
    if result.plots:
        drawn = "".join(f"<div>{draw([plot], palette, width=400)}</div>" for plot in result.plots)
        yield f'<div class="plots">{drawn}</div>'
    for table in result.tables:
        yield from _table(table)
    if result.commands:
        yield f"<h3>Commands</h3><pre>{escape(chr(10).join(result.commands))}</pre>"
    for name, what in (("Provenance", result.provenance), ("Settings", result.settings)):
        if what:
            text = escape(json.dumps(what, indent=2, ensure_ascii=False))
            yield f"<details><summary>{name}</summary><pre>{text}</pre></details>"
    yield "</section>"


def _table(table: Table) -> Iterator[str]:
    numeric = [
        all(not isinstance(value, str) for value in column) for column in zip(*table.rows, strict=True)
    ] or [False] * len(table.columns)
    yield f"<h3>{escape(table.title)}</h3>"
    folded = len(table.rows) > _LONG
    if folded:
        yield f"<details><summary>{len(table.rows)} rows</summary>"
    yield '<div class="scroll"><table><thead><tr>'
    for column, right in zip(table.columns, numeric, strict=True):
        yield f"<th{_right(right)}>{escape(column)}</th>"
    yield "</tr></thead><tbody>"
    for row in table.rows:
        cells = (f"<td{_right(right)}>{_cell(v)}</td>" for v, right in zip(row, numeric, strict=True))
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>" + ("</details>" if folded else "")


def _right(numeric: bool) -> str:
    return ' class="n"' if numeric else ""


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return escape(f"{value:.4g}" if isinstance(value, float) else value)
