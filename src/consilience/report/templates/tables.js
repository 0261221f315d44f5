// Tables of the page: sorted by a click on a heading, and a cue where there is more to the right.
(function () {
  document.documentElement.classList.add("scripted");
  function value(row, column) {
    var cell = row.cells[column];
    if (!cell || cell.colSpan > 1) return null;
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    var text = cell.textContent.trim(), found = text.replace(/\u2212/g, "-").match(/^[-+]?[\d.]+/);
    if (text === "\u2013" || text === "") return null;
    if (!found) return text.toLowerCase();
    var scale = { ms: 0.001, s: 1, min: 60, h: 3600, k: 1e3, M: 1e6, G: 1e9 }[(text.match(/[\d.]+\s*(ms|s|min|h|k|M|G)\b/) || [])[1]];
    return Number(found[0]) * (scale || 1);
  }
  function sort(table, heading, column) {
    var body = table.tBodies[0], down = heading.getAttribute("aria-sort") === "descending" ? 1 : -1;
    if (column === 0 && !heading.hasAttribute("aria-sort")) down = 1;
    Array.from(table.tHead.querySelectorAll("th")).forEach(function (each) { each.removeAttribute("aria-sort"); });
    heading.setAttribute("aria-sort", down < 0 ? "descending" : "ascending");
    Array.from(body.rows).map(function (row, place) { return { row: row, place: place, value: value(row, column) }; })
      .sort(function (a, b) {
        if (a.value === null || b.value === null) return (a.value === null) - (b.value === null) || a.place - b.place;
        if (typeof a.value !== typeof b.value) return typeof a.value === "number" ? -1 : 1;
        return a.value < b.value ? -down : a.value > b.value ? down : a.place - b.place;
      }).forEach(function (each) { body.appendChild(each.row); });
  }
  document.querySelectorAll("table[data-sort]").forEach(function (table) {
    var plain = table.tHead.rows.length === 1;
    Array.from(table.tHead.querySelectorAll("th")).forEach(function (heading) {
      var column = heading.dataset.column !== undefined ? Number(heading.dataset.column) : plain ? heading.cellIndex : -1;
      if (column < 0) return;
      var button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      while (heading.firstChild) button.appendChild(heading.firstChild);
      heading.appendChild(button);
      button.addEventListener("click", function () { sort(table, heading, column); });
    });
  });
  var boxes = Array.from(document.querySelectorAll(".scroll"));
  function cue(box) {
    box.classList.toggle("more", box.scrollWidth - box.clientWidth - box.scrollLeft > 4);
    box.classList.toggle("wider", box.scrollWidth - box.clientWidth > 4);
  }
  function cues() { boxes.forEach(cue); }
  boxes.forEach(function (box) { box.addEventListener("scroll", function () { cue(box); }, { passive: true }); });
  document.querySelectorAll("details").forEach(function (each) { each.addEventListener("toggle", cues); });
  addEventListener("resize", cues);
  cues();
})();
