"use strict";
/* The page: scenes with their models, what the visitor does to the modalities, and what the models answer. */
(async () => {
  const $ = (id) => document.getElementById(id);
  const LEADER = "bayes-robust";
  const ALIKE = 1.15; // trust that differs by a smaller factor is about alike

  async function unpack(id) {
    const packed = Uint8Array.from(atob($(id).textContent.trim()), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).arrayBuffer();
  }

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  let scenes;
  try {
    const bytes = await unpack("block-data");
    scenes = JSON.parse(new TextDecoder().decode(await unpack("scenes-data")));
    for (const scene of scenes) {
      for (const graph of Object.values(scene.graphs)) graph.constants = readTensors(graph.constants, bytes);
      scene.cases.inputs = readTensors(scene.cases.inputs, bytes);
      for (const name of Object.keys(scene.cases.outputs)) scene.cases.outputs[name] = readTensors(scene.cases.outputs[name], bytes);
      scene.settings = scene.modalities.map(() => ({ noise: 0, missing: false, swapped: false }));
      scene.row = 0;
    }
  } catch (error) {
    $("loading").textContent = `This page could not be unpacked (${error.message}). It needs a browser of 2023 or later.`;
    return;
  }
  let scene = scenes[0];
  let latest = 0; // the number of the last change; older computations stop

  const methods = () => Object.keys(scene.graphs);

  /* The next sample of another class, whose modality takes the place of a swapped one. */
  function donor(row, m) {
    const n = scene.samples.length;
    for (let step = 1 + m; step < 2 * n; step++)
      if (scene.samples[(row + step) % n].y !== scene.samples[row].y) return (row + step) % n;
    return row;
  }

  /* The values of a modality in a sample, as the visitor has disturbed it: more noise is more of the same noise. */
  function disturbed(row, m) {
    const { noise, swapped } = scene.settings[m];
    const { name, std } = scene.modalities[m];
    const values = scene.samples[swapped ? donor(row, m) : row].x[name];
    if (!noise) return values;
    const drawn = scene.samples[row].noise[name];
    return values.map((value, i) => value + noise * std[i] * drawn[i]);
  }

  /* The answers of a method to samples; masks has a mask for each row. */
  function ask(method, rows, masks) {
    const inputs = {};
    scene.modalities.forEach(({ name, std }, m) => {
      const data = Float64Array.from(rows.flatMap((row) => disturbed(row, m)), Math.fround);
      inputs[name] = { dims: [rows.length, std.length], data, kind: "float" };
    });
    const mask = Float64Array.from(masks.flat(), Number);
    inputs.present = { dims: [rows.length, scene.modalities.length], data: mask, kind: "bool" };
    const found = runGraph(scene.graphs[method], inputs);
    const row = (of, place) => {
      if (!of) return null;
      const width = of.dims[1];
      return Array.from(of.data.subarray(place * width, (place + 1) * width));
    };
    return rows.map((_, place) => Object.fromEntries(Object.keys(found).map((key) => [key, row(found[key], place)])));
  }

  const present = () => scene.settings.map((each) => !each.missing);
  const best = (values) => values.indexOf(Math.max(...values));
  const percent = (value) => `${Math.round(100 * value)} %`;
  const short = (value) => (value < 0.005 ? "0" : value.toFixed(2));

  /* ---- drawing ---- */

  /* Grey values as squares, from a corner on. */
  function paintSquares(context, m, left, top, width) {
    const values = disturbed(scene.row, m);
    const [low, high] = scene.ranges[scene.modalities[m].name];
    const side = Math.round(Math.sqrt(values.length));
    const cell = width / side;
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--ink");
    values.forEach((value, i) => {
      context.globalAlpha = Math.min(1, Math.max(0, (value - low) / (high - low)));
      context.fillRect(left + (i % side) * cell, top + Math.floor(i / side) * cell, cell, cell);
    });
    context.globalAlpha = 1;
  }

  function paintWhole() {
    const canvas = $("whole");
    const context = canvas.getContext("2d");
    const half = canvas.width / 2;
    canvas.hidden = scene.kind !== "quadrants";
    context.clearRect(0, 0, canvas.width, canvas.height);
    if (!canvas.hidden)
      scene.settings.forEach(({ missing }, m) => { if (!missing) paintSquares(context, m, (m % 2) * half, Math.floor(m / 2) * half, half); });
  }

  function paint(canvas, m) {
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, canvas.width, canvas.height);
    if (scene.kind === "quadrants") {
      paintSquares(context, m, 0, 0, canvas.width);
      return;
    }
    const values = disturbed(scene.row, m);
    const [usualLow, usualHigh] = scene.ranges[scene.modalities[m].name];
    const room = 0.35 * (usualHigh - usualLow);
    const low = Math.min(usualLow - room, ...values);
    const high = Math.max(usualHigh + room, ...values);
    const style = getComputedStyle(document.documentElement);
    const y = (value) => 6 + (canvas.height - 12) * (1 - (value - low) / (high - low));
    const x = (i) => 6 + (i * (canvas.width - 12)) / (values.length - 1);
    // What training has seen, so that a curve that leaves it is seen to do so at any scale.
    context.fillStyle = style.getPropertyValue("--line");
    context.globalAlpha = 0.5;
    context.fillRect(0, y(usualHigh), canvas.width, y(usualLow) - y(usualHigh));
    context.globalAlpha = 1;
    context.strokeStyle = style.getPropertyValue("--accent");
    context.lineWidth = 3;
    context.beginPath();
    values.forEach((value, i) => (i ? context.lineTo(x(i), y(value)) : context.moveTo(x(i), y(value))));
    context.stroke();
  }

  function bars(probabilities, y) {
    const top = best(probabilities);
    const made = element("div", { class: "classes", "aria-hidden": "true" });
    probabilities.forEach((value, c) => {
      const bar = element("span", { title: `${scene.classes[c]}: ${percent(value)}` });
      bar.style.height = `${Math.max(2, 100 * value)}%`;
      bar.classList.toggle("top", c === top);
      bar.classList.toggle("true", c === y);
      made.append(bar);
    });
    return made;
  }

  function meter(label, value, kind) {
    const fill = element("i");
    fill.style.width = value === null ? "0" : `${100 * Math.min(1, value)}%`;
    return [
      element("span", {}, label),
      element("span", { class: `meter ${kind}`, "aria-hidden": "true" }, fill),
      element("span", {}, value === null ? "–" : short(value)),
    ];
  }

  /* "a", "a and b", "a, b and c" */
  const listed = (names) => (names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`);

  /* Whom the leader trusts, in a sentence that fits the numbers as they are drawn. */
  function whomItTrusts(trust, there) {
    if (there.length < 2) return "";
    const label = (m) => scene.modalities[m].label;
    const [most, least] = [Math.max, Math.min].map((of) => of(...there.map((m) => trust[m])));
    if (most <= ALIKE * least) return ` It trusts ${listed(there.map(label))} about alike.`;
    const named = (value) => {
      const those = there.filter((m) => short(trust[m]) === short(value));
      return `${listed(those.map(label))} (${short(value)}${those.length > 1 ? " each" : ""})`;
    };
    return ` It trusts ${named(most)} most and ${named(least)} least.`;
  }

  /* How the first sample was chosen when the page was made: `typical` of shown_samples.py. */
  function saysWhyFirst() {
    const { typical, samples } = scene;
    if (!typical) return `The ${samples.length} samples come as they are.`;
    return (
      `The first sample is chosen: every method is right about it when all is well, ${LEADER} is so whichever one ` +
      `modality is broken (noise of ${scene.loudest} standard deviations), and with the first one broken its ρ alone is below ½. ` +
      `This holds for ${typical} of the ${samples.length} samples; the others come as they are.`
    );
  }

  /* The controls of a scene are made once; what they change is drawn by `show`. */
  function build() {
    $("words").textContent = scene.words;
    $("first").textContent = saysWhyFirst();
    $("legend").textContent = `Bars: the probability of each class, from left to right ${listed(scene.classes)}. Blue is the decision, the green line marks the truth.`;
    $("modalities").className = scene.kind;
    $("modalities").replaceChildren(
      ...scene.modalities.map(({ label }, m) => {
        const settings = scene.settings[m];
        const card = element("div", { class: "modality", "data-modality": scene.modalities[m].name });
        const size = scene.kind === "quadrants" ? 96 : 192;
        const canvas = element("canvas", { width: size, height: size, role: "img", "aria-label": `What ${label} shows` });
        const slider = element("input", { type: "range", min: 0, max: scene.loudest, step: 0.1, value: settings.noise, "aria-label": `Noise of ${label}, standard deviations` });
        const output = element("output");
        slider.addEventListener("input", () => { settings.noise = Number(slider.value); show(); });
        const toggle = (key, text) => {
          const button = element("button", { type: "button", "data-key": key, "aria-pressed": settings[key], "aria-label": `${label} ${text}` }, text);
          button.addEventListener("click", () => { settings[key] = !settings[key]; show(); });
          return button;
        };
        const controls = element("div", { class: "controls" }, element("label", {}, "noise", slider, output), toggle("missing", "missing"), toggle("swapped", "swapped"));
        card.append(element("h3", {}, label, element("small")), canvas, element("div", {}, controls, element("div", { class: "alone" })), element("div", { class: "meters" }));
        return card;
      }),
    );
    show();
  }

  function showControls() {
    scene.modalities.forEach((_, m) => {
      const card = $("modalities").children[m];
      const { noise, missing, swapped } = scene.settings[m];
      card.classList.toggle("absent", missing);
      card.querySelector("input").value = noise;
      card.querySelector("input").setAttribute("aria-valuetext", `${noise} standard deviations`);
      card.querySelector("output").textContent = `${noise.toFixed(1)} σ`;
      for (const button of card.querySelectorAll("button")) button.setAttribute("aria-pressed", { missing, swapped }[button.dataset.key]);
      paint(card.querySelector("canvas"), m);
    });
    paintWhole();
    const y = scene.samples[scene.row].y;
    $("which").textContent = `Sample ${scene.row + 1} of ${scene.samples.length}, truly ${scene.classes[y]}`;
    $("many").textContent = scene.samples.length;
  }

  function showAnswers() {
    const mask = present();
    const y = scene.samples[scene.row].y;
    const count = scene.modalities.length;
    const masks = [mask, ...scene.modalities.map((_, m) => scene.modalities.map((__, k) => k === m && mask[m]))];
    const [whole, ...alone] = ask(LEADER, masks.map(() => scene.row), masks);
    scene.modalities.forEach(({ label }, m) => {
      const card = $("modalities").children[m];
      const says = card.querySelector(".alone");
      const rho = whole.reliability ? whole.reliability[m] : null;
      if (mask[m]) {
        const top = best(alone[m].probabilities);
        card.querySelector("small").textContent = `alone: ${scene.classes[top]}, ${percent(alone[m].probabilities[top])}`;
        says.replaceChildren(bars(alone[m].probabilities, y));
      } else {
        card.querySelector("small").textContent = "missing";
        says.replaceChildren();
      }
      card.querySelector(".meters").replaceChildren(element("span", { class: "whose" }, LEADER), ...meter("ρ", mask[m] ? rho : null, "rho"), ...meter("trust", mask[m] ? whole.trust[m] : null, "trust"));
      card.setAttribute("aria-label", label);
    });
    const answers = Object.fromEntries(methods().map((name) => [name, name === LEADER ? whole : ask(name, [scene.row], [mask])[0]]));
    $("methods").replaceChildren(
      ...methods().map((name) => {
        const { probabilities } = answers[name];
        const top = best(probabilities);
        const says = element("span", { class: `says ${top === y ? "right" : "wrong"}` }, `${scene.classes[top]}, ${percent(probabilities[top])} ${top === y ? "✓" : "✗"}`);
        return element("div", { class: "method", "data-method": name }, element("b", {}, name), bars(probabilities, y), says);
      }),
    );
    // On a narrow screen the decisions are far from the sliders; these lines stay in sight.
    $("brief").replaceChildren(
      ...methods().map((name) => {
        const top = best(answers[name].probabilities);
        return element("span", { class: top === y ? "right" : "wrong" }, element("b", {}, name), ` ${scene.classes[top]} ${top === y ? "✓" : "✗"}`);
      }),
    );
    const leader = answers[LEADER].probabilities;
    const top = best(leader);
    const there = scene.modalities.map((_, m) => m).filter((m) => mask[m]);
    $("said").textContent = there.length
      ? `${LEADER} says ${scene.classes[top]} (${percent(leader[top])}), which is ${top === y ? "right" : "wrong"}.${whomItTrusts(whole.trust, there)}`
      : "Nothing is there: what the methods say now, they say of any sample.";
  }

  /* The share of all samples that each method has right, a few at a time so that the page stays responsive. */
  async function showShares(change) {
    const mask = present();
    const right = Object.fromEntries(methods().map((name) => [name, 0]));
    const rows = scene.samples.map((_, row) => row);
    for (let start = 0; start < rows.length; start += 8)
      for (const name of methods()) {
        await new Promise((resolve) => setTimeout(resolve));
        if (change !== latest) return;
        const part = rows.slice(start, start + 8);
        ask(name, part, part.map(() => mask)).forEach(({ probabilities }, i) => {
          right[name] += best(probabilities) === scene.samples[part[i]].y;
        });
      }
    $("shares").replaceChildren(
      ...methods().map((name) => {
        const share = right[name] / rows.length;
        const fill = element("i");
        fill.style.width = `${100 * share}%`;
        return element("div", { class: "share", "data-method": name }, element("span", {}, name), element("span", { class: "meter", "aria-hidden": "true" }, fill), element("span", {}, percent(share)));
      }),
    );
    $("shares").removeAttribute("aria-busy");
  }

  let waiting = 0;
  function show() {
    const change = ++latest;
    $("shares").setAttribute("aria-busy", "true"); // it shows what was before
    showControls();
    if (!waiting)
      waiting = requestAnimationFrame(() => {
        waiting = 0;
        showAnswers();
      });
    setTimeout(() => { if (change === latest) showShares(change); }, 350);
  }

  /* ---- situations ---- */

  const settle = (f) => { scene.settings.forEach((each, m) => Object.assign(each, { noise: 0, missing: false, swapped: false }, f(m))); show(); };
  const situations = {
    "all is well": () => settle(() => ({})),
    "a little noise everywhere": () => settle(() => ({ noise: 1 })),
    "one is broken": () => settle((m) => (m === 0 ? { noise: scene.loudest } : {})),
    "one is swapped": () => settle((m) => (m === 0 ? { swapped: true } : {})),
    "one is missing": () => settle((m) => (m === 0 ? { missing: true } : {})),
  };
  document.querySelector(".presets").append(
    ...Object.entries(situations).map(([text, f]) => {
      const button = element("button", { type: "button" }, text);
      button.addEventListener("click", f);
      return button;
    }),
  );
  const turn = (by) => { scene.row = (scene.row + by + scene.samples.length) % scene.samples.length; show(); };
  $("before").addEventListener("click", () => turn(-1));
  $("next").addEventListener("click", () => turn(1));

  function choose(place) {
    scene = scenes[place];
    [...$("tabs").children].forEach((tab, n) => {
      tab.setAttribute("aria-selected", n === place);
      tab.tabIndex = n === place ? 0 : -1;
    });
    $("scene").setAttribute("aria-labelledby", `tab-${place}`);
    build();
  }
  scenes.forEach(({ name }, place) => {
    const tab = element("button", { type: "button", role: "tab", id: `tab-${place}`, "aria-controls": "scene" }, name);
    tab.addEventListener("click", () => choose(place));
    tab.addEventListener("keydown", ({ key }) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
      if (!step) return;
      const to = (place + step + scenes.length) % scenes.length;
      choose(to);
      $("tabs").children[to].focus();
    });
    $("tabs").append(tab);
  });

  /* The stored cases, computed here and in Python. */
  function largestDifference() {
    let largest = 0;
    let number = 0;
    for (const { graphs, cases } of scenes) {
      number += cases.inputs.present.dims[0];
      for (const [method, outputs] of Object.entries(cases.outputs)) {
        const found = runGraph(graphs[method], cases.inputs);
        for (const [name, { data }] of Object.entries(outputs))
          data.forEach((value, i) => { largest = Math.max(largest, Math.abs(value - found[name].data[i])); });
      }
    }
    return [number, largest];
  }

  $("loading").remove();
  $("tabs").hidden = false;
  $("scene").hidden = false;
  $("live").removeAttribute("aria-busy");
  choose(0);
  addEventListener("resize", showControls);
  new IntersectionObserver(([{ isIntersecting }]) => { $("brief").hidden = isIntersecting; }).observe($("methods"));
  $("theme").addEventListener("click", showControls);
  setTimeout(() => {
    const [number, largest] = largestDifference();
    $("check").textContent = `In ${number} stored cases the page and Python differ by at most ${largest.toExponential(0)}.`;
    $("check").dataset.difference = largest;
  }, 1200);
})();
