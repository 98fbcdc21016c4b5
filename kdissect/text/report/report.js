"use strict";
(() => {
  // Tables: a click on a heading sorts, a field above filters.
  const units = { B: 1, KB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, us: 1e-6, ms: 1e-3, s: 1, minutes: 60, hours: 3600, days: 86400, "%": 1 };
  const amount = (text) => {
    const found = /^(?:over )?(-?[\d,]*\.?\d+) ?([A-Za-z%]*)/.exec(text);
    return found && (found[2] === "" || found[2] in units)
      ? parseFloat(found[1].replaceAll(",", "")) * (units[found[2]] ?? 1)
      : null;
  };
  const compare = (one, two, numbers) => {
    if (!numbers) return one.localeCompare(two, "en", { numeric: true });
    return (amount(one) ?? -Infinity) - (amount(two) ?? -Infinity) || 0;
  };
  const sort = (table, heading, place) => {
    const order = heading.ariaSort === "descending" ? "ascending" : "descending";
    for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
    heading.ariaSort = order;
    const sign = order === "ascending" ? 1 : -1;
    const numbers = heading.classList.contains("n");
    const text = (row) => row.cells[place].textContent;
    table.tBodies[0].append(...[...table.tBodies[0].rows].sort((a, b) => sign * compare(text(a), text(b), numbers)));
  };
  const filter = (table, wanted) => {
    const words = wanted.toLowerCase().split(/\s+/);
    for (const row of table.tBodies[0].rows)
      row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
  };
  const enliven = (table) => {
    [...table.tHead.rows[0].cells].forEach((heading, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = heading.textContent;
      button.onclick = () => sort(table, heading, place);
      heading.replaceChildren(button);
    });
    if (table.tBodies[0].rows.length < 6) return;
    const field = document.createElement("input");
    field.type = "search";
    field.placeholder = "Filter rows";
    field.ariaLabel = `Filter rows: ${table.caption.textContent}`;
    field.oninput = () => filter(table, field.value);
    table.parentElement.before(field);
  };
  document.querySelectorAll("table").forEach(enliven);

  // Charts: all have the same time axis.
  const data = document.getElementById("data");
  if (data === null) return;
  const charts = JSON.parse(data.textContent);
  for (const { columns } of charts)
    for (const name of ["t", "e"]) if (columns[name] === null) columns[name] = charts[0].columns[name];
  const views = [];
  let drawn = 0;
  const timed = charts.filter((chart) => "t" in chart.columns);
  const ends = [Math.min(...timed.map((chart) => chart.columns.t[0])), Math.max(...timed.flatMap((chart) => chart.columns.e))];
  let range = ends;
  const rowsOf = (columns) => Object.values(columns)[0].map((_, row) => Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, values[row]])));
  const time = (ms) => new Date(ms).toISOString().replace("T", " ").replace("Z", "");
  const show = (from, until) => {
    const least = Math.min(1, ends[1] - ends[0]);
    const length = Math.min(Math.max(until - from, least), ends[1] - ends[0]);
    const start = Math.min(Math.max(from, ends[0]), ends[1] - length);
    range = [start, start + length];
    document.getElementById("range").textContent = `${time(range[0])} to ${time(range[1])} UTC`;
    for (const { name, view } of views)
      if (name === "overview") view.signal("from", ends[0]).signal("until", ends[1]).runAsync();
      else view.signal("from", range[0]).signal("until", range[1]).runAsync();
  };
  const moves = { in: [0.25, -0.25], out: [-0.5, 0.5], earlier: [-0.5, -0.5], later: [0.5, 0.5], all: [-Infinity, Infinity] };
  document.getElementById("zoom").onclick = ({ target }) => {
    const move = moves[target.dataset.zoom];
    if (move === undefined) return;
    const length = range[1] - range[0];
    show(Math.max(range[0] + move[0] * length, ends[0] - length), Math.min(range[1] + move[1] * length, ends[1] + length));
  };
  const numbers = (chart, details) => {
    const names = Object.keys(chart.columns);
    const table = document.createElement("table");
    table.createCaption().textContent = `${chart.title}: numbers`;
    const headings = table.createTHead().insertRow();
    for (const name of names) {
      const heading = document.createElement("th");
      heading.scope = "col";
      heading.textContent = { t: "from", e: "until" }[name] ?? name;
      if (typeof chart.columns[name][0] === "number") heading.className = "n";
      headings.append(heading);
    }
    const body = table.createTBody();
    chart.columns[names[0]].forEach((_, place) => {
      const row = body.insertRow();
      for (const name of names) {
        const value = chart.columns[name][place];
        const cell = row.insertCell();
        cell.textContent = name === "t" || name === "e" ? time(value) : value;
        if (typeof value === "number") cell.className = "n";
      }
    });
    const wide = document.createElement("div");
    wide.className = "wide";
    wide.tabIndex = 0;
    wide.append(table);
    details.append(wide);
  };
  const draw = async (chart) => {
    const figure = document.getElementById(`chart-${chart.name}`);
    const details = figure.querySelector("details");
    chart.title = figure.querySelector("h3").textContent;
    details.hidden = false;
    details.addEventListener("toggle", () => numbers(chart, details), { once: true });
    const spec = { ...chart.spec, datasets: { ...chart.spec.datasets, rows: rowsOf(chart.columns) } };
    const options = { mode: "vega-lite", ast: true, renderer: "svg", actions: false, tooltip: false, defaultStyle: false };
    const { view } = await window.vegaEmbed(figure.querySelector(".chart"), spec, options);
    drawn += 1;
    if ("t" in chart.columns) views.push({ name: chart.name, view });
    if (chart.name === "overview")
      view.addSignalListener("brush", (_, { t }) => (t && t[0] < t[1] ? show(+t[0], +t[1]) : show(...ends)));
  };
  document.getElementById("zoom").hidden = timed.length === 0;
  Promise.all(charts.map(draw)).then(() => {
    if (timed.length > 0) show(...ends);
    document.body.dataset.drawn = drawn;
  });
})();
