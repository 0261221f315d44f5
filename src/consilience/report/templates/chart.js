// The chart of the page: draws the JSON beside it; methods, condition and metric can be chosen, values pointed at.
(function () {
  var block = document.getElementById("chart-data"), place = document.getElementById("chart");
  if (!block || !place) return;
  var data = JSON.parse(block.textContent), svgns = document.querySelector("figure svg").namespaceURI;
  var state = { set: 0, corruption: 0, metric: 0, shown: data.colours.map(function (colour) { return colour !== null; }) };
  document.documentElement.classList.add("live");
  place.hidden = false;

  function element(name, attributes, parent, text) {
    var made = name.slice(0, 4) === "svg:" ? document.createElementNS(svgns, name.slice(4)) : document.createElement(name);
    for (var key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.appendChild(made);
    return made;
  }
  function colour(method) {
    var number = data.colours[method] === null ? method % 8 : data.colours[method];
    return "var(--series-" + number + ")";
  }
  function dash(method) { return ["", "5 3", "1.5 2.5", "8 3 2 3"][Math.floor(method / 8) % 4]; }
  function values(method) { return data.sets[state.set].values[state.metric][state.corruption][method]; }
  function number(value) { return value.toFixed(data.metrics[state.metric].decimals).replace("-", "\u2212"); }
  function level(value) { return value === 0 ? "clean" : String(value); }

  // controls
  var controls = element("div", { "class": "controls" }, place), selects = {};
  function choice(key, label, names) {
    if (names.length < 2) return;
    var wrap = element("label", {}, controls, label + " ");
    var select = element("select", {}, wrap);
    names.forEach(function (name, index) { element("option", { value: index }, select, name); });
    select.addEventListener("change", function () {
      state[key] = Number(select.value);
      if (key === "set") { state.corruption = 0; renew(); }
      draw();
    });
    selects[key] = select;
  }
  function renew() {
    var select = selects.corruption;
    if (!select) return;
    select.textContent = "";
    data.sets[state.set].corruptions.forEach(function (name, index) { element("option", { value: index }, select, name); });
  }
  choice("set", "Data", data.sets.map(function (each) { return each.name; }));
  choice("corruption", "Corruption", data.sets[0].corruptions);
  choice("metric", "Metric", data.metrics.map(function (each) { return each.title; }));

  var frame = element("div", { "class": "plot" }, place);
  var tip = element("div", { "class": "tip", hidden: "" }, frame);
  var chips = element("div", { "class": "chips", role: "group", "aria-label": "Methods to draw" }, place);
  var boxes = data.methods.map(function (name, method) {
    var chip = element("label", { "class": "chip" }, chips);
    var box = element("input", { type: "checkbox" }, chip);
    var swatch = element("svg:svg", { viewBox: "0 0 18 8", width: 18, height: 8, "aria-hidden": "true" }, chip);
    element("svg:line", { x1: 0, x2: 18, y1: 4, y2: 4, stroke: colour(method), "stroke-width": 2.5, "stroke-dasharray": dash(method) }, swatch);
    element("span", {}, chip, name);
    box.checked = state.shown[method];
    box.addEventListener("change", function () { state.shown[method] = box.checked; draw(); });
    chip.addEventListener("pointerenter", function () { stress(method); });
    chip.addEventListener("pointerleave", function () { stress(-1); });
    return box;
  });
  function all(which) {
    boxes.forEach(function (box, method) { box.checked = state.shown[method] = which(method); });
    draw();
  }
  var sets = element("span", { "class": "choose" }, chips);
  if (data.methods.length > 8) {
    element("button", { type: "button" }, sets, "First eight").addEventListener("click", function () { all(function (m) { return data.colours[m] !== null; }); });
  }
  element("button", { type: "button" }, sets, "All").addEventListener("click", function () { all(function () { return true; }); });
  element("button", { type: "button" }, sets, "None").addEventListener("click", function () { all(function () { return false; }); });

  // the plot
  var picture = null, lines = {}, geometry = null;
  function ticks(low, high) {
    var span = high - low || 1, ten = Math.pow(10, Math.floor(Math.log(span / 5) / Math.LN10));
    var step = [1, 2, 5, 10].map(function (times) { return times * ten; }).filter(function (size) { return span / size <= 5.5; })[0];
    var found = [];
    for (var at = Math.ceil(low / step); at * step <= high + 1e-9; at++) found.push(at * step);
    return { at: found, decimals: Math.max(0, -Math.floor(Math.log(step) / Math.LN10 + 1e-9)) };
  }
  function shown() {
    return data.methods.map(function (_, method) { return method; }).filter(function (method) {
      return state.shown[method] && values(method).some(function (pair) { return pair && pair[0] !== null; });
    });
  }
  function apart(ends, gap, top, bottom) {
    ends.sort(function (a, b) { return a.y - b.y; });
    ends.forEach(function (end, index) { end.at = index ? Math.max(end.y, ends[index - 1].at + gap) : Math.max(end.y, top); });
    for (var index = ends.length - 1, limit = bottom; index >= 0; index--) {
      ends[index].at = Math.min(ends[index].at, limit);
      limit = ends[index].at - gap;
    }
    return ends;
  }
  function draw() {
    var drawn = shown(), width = Math.max(frame.clientWidth, 260), wide = width > 560;
    var longest = drawn.reduce(function (most, method) { return Math.max(most, data.methods[method].length); }, 4);
    var left = 46, right = wide ? Math.min(190, 24 + 7.2 * longest) : 14, top = 26, bottom = 40, height = wide ? 380 : 300;
    if (picture) picture.remove();
    tip.hidden = true;
    var title = data.metrics[state.metric].title + " on " + data.sets[state.set].name + " under " + data.sets[state.set].corruptions[state.corruption];
    picture = element("svg:svg", { width: width, height: height, role: "img", "aria-label": title + ", against the level" }, null);
    frame.insertBefore(picture, tip);
    lines = {};
    element("svg:text", { x: 0, y: 12, "class": "axis" }, picture, data.metrics[state.metric].title);
    if (!drawn.length) {
      element("svg:text", { x: width / 2, y: height / 2, "class": "axis", "text-anchor": "middle" }, picture, "Choose methods below.");
      geometry = null;
      return;
    }
    var low = Infinity, high = -Infinity;
    drawn.forEach(function (method) {
      values(method).forEach(function (pair) {
        if (!pair || pair[0] === null) return;
        low = Math.min(low, pair[0] - (pair[1] || 0)); high = Math.max(high, pair[0] + (pair[1] || 0));
      });
    });
    var air = 0.04 * (high - low) || 0.5, first = data.levels[0], last = data.levels[data.levels.length - 1];
    low -= air; high += air;
    function x(value) { return left + 8 + (value - first) / (last - first || 1) * (width - left - right - 16); }
    function y(value) { return height - bottom - (value - low) / (high - low) * (height - top - bottom); }
    var marks = ticks(low, high);
    marks.at.forEach(function (value) {
      element("svg:line", { x1: left, x2: width - right, y1: y(value), y2: y(value), "class": "grid" }, picture);
      element("svg:text", { x: left - 7, y: y(value) + 4, "class": "axis", "text-anchor": "end" }, picture, value.toFixed(marks.decimals).replace("-", "\u2212"));
    });
    var free = -Infinity;
    data.levels.forEach(function (value) {
      if (x(value) - free < 34) return;
      free = x(value);
      element("svg:text", { x: x(value), y: height - bottom + 17, "class": "axis", "text-anchor": "middle" }, picture, level(value));
    });
    element("svg:text", { x: (left + width - right) / 2, y: height - 5, "class": "axis", "text-anchor": "middle" }, picture, "level of " + data.sets[state.set].corruptions[state.corruption]);
    var guide = element("svg:line", { y1: top, y2: height - bottom, "class": "guide", visibility: "hidden" }, picture);
    var ends = [];
    drawn.slice().reverse().forEach(function (method) {
      var group = element("svg:g", { style: "color:" + colour(method) }, picture), path = "", over = [], under = [], from = null;
      values(method).forEach(function (pair, index) {
        if (!pair || pair[0] === null) return;
        var at = x(data.levels[index]);
        path += (path ? "L" : "M") + at.toFixed(1) + " " + y(pair[0]).toFixed(1);
        over.push(at.toFixed(1) + " " + y(pair[0] + (pair[1] || 0)).toFixed(1));
        under.unshift(at.toFixed(1) + " " + y(pair[0] - (pair[1] || 0)).toFixed(1));
        from = pair[0];
      });
      element("svg:path", { d: "M" + over.concat(under).join("L") + "Z", "class": "band" }, group);
      element("svg:path", { d: path, "class": "line", "stroke-dasharray": dash(method) }, group);
      values(method).forEach(function (pair, index) {
        if (pair && pair[0] !== null) element("svg:circle", { cx: x(data.levels[index]), cy: y(pair[0]), r: 3, "class": "dot" }, group);
      });
      lines[method] = group;
      ends.push({ method: method, y: y(from) });
    });
    if (wide) apart(ends, Math.min(15, (height - top - bottom) / Math.max(ends.length - 1, 1)), top, height - bottom).forEach(function (end) {
      element("svg:path", { d: "M" + (width - right - 6) + " " + end.y + "L" + (width - right + 8) + " " + end.at, "class": "leader", style: "color:" + colour(end.method) }, lines[end.method]);
      element("svg:text", { x: width - right + 12, y: end.at + 4, "class": "label" }, lines[end.method], data.methods[end.method]);
    });
    geometry = { x: x, y: y, drawn: drawn, guide: guide, width: width };
  }
  function stress(method) {
    for (var key in lines) lines[key].setAttribute("class", method < 0 || !lines[method] || Number(key) === method ? "" : "faint");
  }
  function point(event) {
    if (!geometry) return;
    var box = picture.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top, nearest = 0;
    data.levels.forEach(function (value, index) {
      if (Math.abs(geometry.x(value) - px) < Math.abs(geometry.x(data.levels[nearest]) - px)) nearest = index;
    });
    var rows = geometry.drawn.map(function (method) { return { method: method, pair: values(method)[nearest] }; });
    rows = rows.filter(function (row) { return row.pair && row.pair[0] !== null; });
    if (!rows.length) return;
    var sign = data.metrics[state.metric].larger ? -1 : 1, close = rows[0];
    rows.sort(function (a, b) { return sign * (a.pair[0] - b.pair[0]); });
    rows.forEach(function (row) {
      if (Math.abs(geometry.y(row.pair[0]) - py) < Math.abs(geometry.y(close.pair[0]) - py)) close = row;
    });
    tip.textContent = "";
    element("b", {}, tip, data.levels[nearest] === 0 ? "clean" : "level " + data.levels[nearest]);
    rows.forEach(function (row) {
      var line = element("div", { "class": row.method === close.method ? "near" : "" }, tip);
      element("i", { style: "background:" + colour(row.method) }, line);
      element("span", {}, line, data.methods[row.method]);
      element("span", {}, line, number(row.pair[0]) + (row.pair[1] === null ? "" : " \u00b1 " + number(row.pair[1])));
    });
    tip.hidden = false;
    var at = geometry.x(data.levels[nearest]), left = at + 14;
    if (left + tip.offsetWidth > geometry.width) left = Math.max(0, at - 14 - tip.offsetWidth);
    tip.style.left = left + "px";
    geometry.guide.setAttribute("x1", at); geometry.guide.setAttribute("x2", at);
    geometry.guide.setAttribute("visibility", "visible");
    stress(close.method);
  }
  frame.addEventListener("pointermove", point);
  frame.addEventListener("pointerdown", point);
  frame.addEventListener("pointerleave", function () {
    tip.hidden = true;
    if (geometry) geometry.guide.setAttribute("visibility", "hidden");
    stress(-1);
  });
  addEventListener("resize", draw);
  draw();
})();
