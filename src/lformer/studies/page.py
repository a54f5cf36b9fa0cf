"""The page that a report is put into: it holds everything that it shows, and needs no network."""

from dataclasses import dataclass
from html import escape
from string import Template
from typing import Any


@dataclass(frozen=True)
class Section:
    """A part of a page; the content is HTML."""

    key: str
    heading: str
    content: str


def render_page(title: str, sections: list[Section], introduction: str = "") -> str:
    """The page as text. The introduction is plain words; columns of class "paper" can be hidden."""
    has_paper = any('class="paper"' in section.content for section in sections)
    body = "\n".join(
        f'<section id="{escape(section.key)}"><h2>{escape(section.heading)}</h2>\n{section.content}\n</section>'
        for section in sections
    )
    links = "".join(f'<li><a href="#{escape(section.key)}">{escape(section.heading)}</a></li>' for section in sections)
    return Template(PAGE).substitute(
        title=escape(title),
        introduction=f"<p>{escape(introduction)}</p>" if introduction else "",
        contents=f'<nav aria-label="Contents"><ul>{links}</ul></nav>',
        controls=CONTROLS if has_paper else "",
        body=body,
    )


def figure_html(svg: str, caption: str) -> str:
    """A figure with the words below it."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def environment_html(environments: dict[str, dict[str, Any]]) -> str:
    """Versions, device and command by run; what is the same in all once, what differs for each."""
    merged: dict[str, dict[str, str]] = {}
    for run, environment in environments.items():
        for name, value in _flat(environment).items():
            merged.setdefault(name, {})[run] = str(value)
    rows = []
    for name, values in merged.items():
        if len(set(values.values())) == 1 and len(values) == len(environments):
            shown = [next(iter(values.values()))]
        else:
            shown = [f"{run}: {value}" for run, value in values.items()]
        rows.append(f'<tr><th scope="row">{escape(name)}</th><td>{"<br>".join(map(escape, shown))}</td></tr>')
    return f'<div class="scroll"><table class="plain"><tbody>{"".join(rows)}</tbody></table></div>'


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value)
        elif value is not None:
            flat[name] = value
    return flat


CONTROLS = '<p><label><input type="checkbox" id="show-paper" checked> show the paper\'s columns</label></p>'

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<title>$title</title>
<style>
:root { color-scheme: light dark; --line: #8886; --soft: #8882; --paper: #56b4e91f;
  --blue: light-dark(#0072b2, #3aa0dc); }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 88rem; margin: 2rem auto; padding: 0 1rem;
  color: CanvasText; background: Canvas; }
p { overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; }
h2 { font-size: 1.2rem; margin-top: 2.5rem; }
nav ul { columns: 18rem; padding-left: 1.2rem; }
nav li { break-inside: avoid; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
thead th { vertical-align: bottom; white-space: normal; min-width: 4.5rem; }
th[scope=row] { font-weight: 500; }
th[scope=row], th.text, td.text, .plain td { text-align: left; }
td.text, .plain td { white-space: normal; overflow-wrap: anywhere; }
td.text { min-width: 10rem; }
.sortable th:first-child { position: sticky; left: 0; background: Canvas; }
sup { line-height: 0; }
.paper { background: var(--paper); }
.without-paper .paper { display: none; }
tbody tr:hover { background: var(--soft); }
th button { font: inherit; font-weight: 600; color: inherit; background: none; border: 0; padding: 0; cursor: pointer;
  text-align: inherit; }
th[aria-sort=ascending] button::after { content: " ▲"; }
th[aria-sort=descending] button::after { content: " ▼"; }
.reasons, .note { font-size: .85rem; max-width: 60rem; color: color-mix(in srgb, CanvasText 80%, Canvas); }
.reasons { margin: .5rem 0; }
figure { display: inline-block; margin: 1rem 1.5rem .5rem 0; max-width: 100%; vertical-align: top; overflow-x: auto; }
figure svg { max-width: 100%; min-width: 26rem; height: auto; }
figcaption { font-size: .85rem; max-width: 34rem; color: color-mix(in srgb, CanvasText 80%, Canvas); }
@media (max-width: 40rem) {
  figure { margin-right: 0; }
  .sortable th:first-child { max-width: 8rem; white-space: normal; overflow-wrap: anywhere; }
}
</style>
</head>
<body>
<h1>$title</h1>
$introduction
$contents
$controls
<main>
$body
</main>
<script>
"use strict";
// A click on a heading sorts the rows by that column; a second click turns the order round. Empty cells stay last.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => heading.querySelector("button").addEventListener("click", () => {
    const order = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    headings.forEach(other => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const value = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const numeric = rows.every(row => !Number.isNaN(Number(value(row))));
    const compare = (a, b) => {
      const x = value(a), y = value(b);
      if (x === "" || y === "") return (x === "") - (y === "");
      return sign * (numeric ? Number(x) - Number(y) : x.localeCompare(y, undefined, { numeric: true }));
    };
    body.append(...rows.sort(compare));
  }));
}
const paper = document.getElementById("show-paper");
if (paper) {
  const show = () => document.body.classList.toggle("without-paper", !paper.checked);
  paper.addEventListener("change", show);
  show();  // a browser may keep the box as it was when the page is loaded again
}
</script>
</body>
</html>
"""
