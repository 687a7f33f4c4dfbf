"use strict";
// Sorts and filters tables; they are complete without this script.
(function () {
  function readValue(row, at) {
    const cell = row.cells[at];
    const stored = cell.getAttribute("data-sort");
    if (stored === null) return (cell.querySelector("bdi") || cell).textContent.trim().toLowerCase();
    return stored === "" ? null : Number(stored);
  }

  function compare(left, right, sign) {
    if (left === null || right === null) return (left === null) - (right === null);
    if (typeof left === "number") return sign * (left - right);
    return sign * left.localeCompare(right, undefined, { numeric: true });
  }

  function setUp(table) {
    const body = table.tBodies[0];
    const rows = Array.from(body.rows);
    const names = rows.map((row) => row.textContent.toLowerCase());
    const first = Number(table.dataset.first || Infinity);
    const form = document.querySelector('form[data-table="' + table.id + '"]');
    let all = rows.length <= first;
    let more = null;

    function show() {
      const fields = form.elements;
      const text = fields.text.value.trim().toLowerCase();
      const kind = fields.kind && fields.kind.selectedIndex ? fields.kind.value : null;
      const run = fields.run && fields.run.selectedIndex ? fields.run.value : null;
      const small = fields.small && fields.small.checked;
      let matches = 0;
      for (const row of body.rows) {
        const isMatch =
          (!text || names[rows.indexOf(row)].includes(text)) &&
          (kind === null || row.dataset.kind === kind) &&
          (run === null || row.dataset.run === run) &&
          !(small && "small" in row.dataset);
        matches += isMatch;
        row.hidden = !isMatch;
        row.classList.toggle("later", !all && matches > first);
      }
      const noun = form.dataset.noun;
      form.querySelector("output").textContent =
        (matches === rows.length ? "" : matches.toLocaleString("en") + " of ") + rows.length.toLocaleString("en") + " " + noun;
      if (more) {
        more.hidden = all || matches <= first;
        more.textContent = "Show all " + matches.toLocaleString("en") + " " + noun;
      }
    }

    if (!all) {
      more = document.createElement("button");
      more.type = "button";
      more.className = "more";
      more.addEventListener("click", () => {
        all = true;
        show();
        table.parentElement.focus();
      });
      table.parentElement.after(more);
    }
    table.tHead.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      const head = button.parentElement;
      const at = head.cellIndex;
      const numeric = head.classList.contains("n");
      const before = head.getAttribute("aria-sort");
      const next = before === "descending" ? "ascending" : before === "ascending" ? "descending" : numeric ? "descending" : "ascending";
      for (const cell of head.parentElement.cells) cell.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", next);
      const sign = next === "ascending" ? 1 : -1;
      const pairs = Array.from(body.rows, (row) => [readValue(row, at), row]);
      pairs.sort((left, right) => compare(left[0], right[0], sign));
      body.append(...pairs.map((pair) => pair[1]));
      show();
    });
    form.addEventListener("input", show);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    show();
  }

  document.querySelectorAll("table.sortable").forEach(setUp);
})();
