"""The page that a report is put into: a template with $title and $body."""

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<title>$title</title>
<style>
:root { color-scheme: light dark; --line: #8886; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem;
  color: CanvasText; background: Canvas; }
h1 { font-size: 1.6rem; }
h2 { font-size: 1.2rem; margin-top: 2rem; }
section { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th[scope=row], .plain td, .sortable th:first-child { text-align: left; }
.plain td { overflow-wrap: anywhere; }
tbody tr:hover { background: var(--soft); }
th button { font: inherit; font-weight: 600; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; }
th[aria-sort=ascending] button::after { content: " ▲"; }
th[aria-sort=descending] button::after { content: " ▼"; }
figure { display: inline-block; margin: 0 1rem 1rem 0; max-width: 100%; vertical-align: top; }
figure svg { max-width: 100%; height: auto; font-family: system-ui, sans-serif; }
figcaption { font-size: .85rem; opacity: .75; max-width: 34rem; }
</style>
</head>
<body>
<h1>$title</h1>
$body
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
    const compare = (a, b) => {
      const x = value(a), y = value(b);
      if (x === "" || y === "") return (x === "") - (y === "");
      return sign * (column ? Number(x) - Number(y) : x.localeCompare(y));
    };
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort(compare));
  }));
}
</script>
</body>
</html>
"""
