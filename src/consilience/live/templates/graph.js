"use strict";
/* Runs the graph of an exported model: ONNX nodes over tensors { dims, data, kind }, one node after another.

   Numbers are computed in 64 bits whatever their type; kind is "float", "double", "int" or "bool". A graph is
   { inputs, outputs, nodes: [[op, inputs, outputs, attributes], …], constants: { name: tensor } }. */
const runGraph = (() => {
  const size = (dims) => dims.reduce((product, n) => product * n, 1);
  const tensor = (dims, data, kind) => ({ dims, data, kind });
  const like = (x, data) => tensor(x.dims, data, x.kind);
  const empty = (dims, kind) => tensor(dims, new Float64Array(size(dims)), kind);
  const stepsOf = (dims) => {
    const steps = new Array(dims.length).fill(1);
    for (let d = dims.length - 2; d >= 0; d--) steps[d] = steps[d + 1] * dims[d + 1];
    return steps;
  };
  const axisOf = (axis, rank) => (axis < 0 ? axis + rank : axis);
  const whole = (x) => Array.from(x.data);
  const count = (n) => Array.from({ length: n }, (_, place) => place);

  /* The places in a tensor of the elements that an index (one number for each step) walks through. */
  function walk(dims, steps, start = 0) {
    let places = Int32Array.of(start);
    dims.forEach((n, d) => {
      const next = new Int32Array(places.length * n);
      let at = 0;
      for (const place of places) for (let i = 0; i < n; i++) next[at++] = place + i * steps[d];
      places = next;
    });
    return places;
  }

  function joined(...shapes) {
    const rank = Math.max(...shapes.map((dims) => dims.length));
    return count(rank).map((d) => {
      const sizes = shapes.map((dims) => dims[d - rank + dims.length] ?? 1).filter((n) => n !== 1);
      if (new Set(sizes).size > 1) throw new Error(`shapes ${JSON.stringify(shapes)} do not fit together`);
      return sizes.length ? sizes[0] : 1;
    });
  }

  /* The places in x of each element of `dims`, to which x is repeated. */
  function spread(x, dims) {
    const own = stepsOf(x.dims);
    const offset = dims.length - x.dims.length;
    return walk(dims, dims.map((_, d) => (d < offset || x.dims[d - offset] === 1 ? 0 : own[d - offset])));
  }

  const each = (x, f, kind = x.kind) => tensor(x.dims, x.data.map(f), kind);

  function pairs(a, b, f, kind = a.kind) {
    const dims = joined(a.dims, b.dims);
    const data = new Float64Array(size(dims));
    const one = spread(a, dims);
    const two = spread(b, dims);
    for (let i = 0; i < data.length; i++) data[i] = f(a.data[one[i]], b.data[two[i]]);
    return tensor(dims, data, kind);
  }

  const folded = (inputs, f) => inputs.reduce((a, b) => pairs(a, b, f));

  function permuted(x, order) {
    const steps = stepsOf(x.dims);
    const places = walk(order.map((d) => x.dims[d]), order.map((d) => steps[d]));
    return tensor(order.map((d) => x.dims[d]), Float64Array.from(places, (place) => x.data[place]), x.kind);
  }

  /* x as [outer, n, inner] around an axis. */
  function around(x, axis) {
    const at = axisOf(axis, x.dims.length);
    return [size(x.dims.slice(0, at)), x.dims[at], size(x.dims.slice(at + 1)), at];
  }

  function reduced(x, axesInput, attrs, f) {
    const rank = x.dims.length;
    let axes = axesInput ? whole(axesInput) : attrs.axes || [];
    if (!axes.length) {
      if (attrs.noop_with_empty_axes) return x;
      axes = count(rank);
    }
    axes = axes.map((axis) => axisOf(axis, rank));
    const kept = count(rank).filter((d) => !axes.includes(d));
    const steps = stepsOf(x.dims);
    const outer = walk(kept.map((d) => x.dims[d]), kept.map((d) => steps[d]));
    const inner = walk(axes.map((d) => x.dims[d]), axes.map((d) => steps[d]));
    const part = new Float64Array(inner.length);
    const data = Float64Array.from(outer, (start) => {
      for (let i = 0; i < inner.length; i++) part[i] = x.data[start + inner[i]];
      return f(part);
    });
    const keep = attrs.keepdims ?? 1;
    return tensor(keep ? x.dims.map((n, d) => (axes.includes(d) ? 1 : n)) : kept.map((d) => x.dims[d]), data, x.kind);
  }

  const sum = (part) => part.reduce((total, value) => total + value, 0);
  const most = (part) => part.reduce((a, b) => Math.max(a, b), -Infinity);
  function logSumExp(part) {
    const top = most(part);
    if (!Number.isFinite(top)) return top;
    return top + Math.log(part.reduce((total, value) => total + Math.exp(value - top), 0));
  }

  /* f changes the n numbers along an axis in place. */
  function along(x, axis, f) {
    const [outer, n, inner] = around(x, axis);
    const data = Float64Array.from(x.data);
    const part = new Float64Array(n);
    for (let o = 0; o < outer; o++)
      for (let i = 0; i < inner; i++) {
        const start = o * n * inner + i;
        for (let k = 0; k < n; k++) part[k] = data[start + k * inner];
        f(part);
        for (let k = 0; k < n; k++) data[start + k * inner] = part[k];
      }
    return like(x, data);
  }

  function product(a, b) {
    const [m, k] = a.dims.slice(-2);
    const n = b.dims[b.dims.length - 1];
    const outer = joined(a.dims.slice(0, -2), b.dims.slice(0, -2));
    const one = spread(tensor(a.dims.slice(0, -2), null), outer).map((place) => place * m * k);
    const two = spread(tensor(b.dims.slice(0, -2), null), outer).map((place) => place * k * n);
    const data = new Float64Array(size(outer) * m * n);
    for (let o = 0; o < one.length; o++)
      for (let i = 0; i < m; i++)
        for (let l = 0; l < k; l++) {
          const value = a.data[one[o] + i * k + l];
          const from = two[o] + l * n;
          const to = (o * m + i) * n;
          for (let j = 0; j < n; j++) data[to + j] += value * b.data[from + j];
        }
    return tensor([...outer, m, n], data, a.kind);
  }

  function matmul(a, b) {
    const left = a.dims.length === 1 ? tensor([1, ...a.dims], a.data, a.kind) : a;
    const right = b.dims.length === 1 ? tensor([...b.dims, 1], b.data, b.kind) : b;
    const found = product(left, right);
    const dims = found.dims.slice(0, -2);
    if (a.dims.length > 1) dims.push(a.dims[a.dims.length - 2]);
    if (b.dims.length > 1) dims.push(b.dims[b.dims.length - 1]);
    return tensor(dims, found.data, a.kind);
  }

  function einsum(inputs, equation) {
    const [before, after] = equation.replace(/\s/g, "").split("->");
    const letters = before.split(",");
    const sizes = {};
    letters.forEach((own, place) => [...own].forEach((letter, d) => { sizes[letter] = inputs[place].dims[d]; }));
    const out = [...after];
    const summed = Object.keys(sizes).filter((letter) => !out.includes(letter));
    const all = [...out, ...summed];
    const dims = all.map((letter) => sizes[letter]);
    const places = inputs.map((x, place) => {
      const own = stepsOf(x.dims);
      const steps = all.map((letter) => [...letters[place]].reduce((step, known, d) => step + (known === letter ? own[d] : 0), 0));
      return walk(dims, steps);
    });
    const found = empty(out.map((letter) => sizes[letter]), inputs[0].kind);
    const inner = size(summed.map((letter) => sizes[letter]));
    for (let i = 0; i < places[0].length; i++)
      found.data[Math.floor(i / inner)] += inputs.reduce((value, x, place) => value * x.data[places[place][i]], 1);
    return found;
  }

  function reshaped(x, shape, attrs) {
    const dims = whole(shape).map((n, d) => (n === 0 && !attrs.allowzero ? x.dims[d] : n));
    const known = dims.filter((n) => n !== -1).reduce((total, n) => total * n, 1);
    return tensor(dims.map((n) => (n === -1 ? x.data.length / known : n)), x.data, x.kind);
  }

  function sliced(x, starts, ends, axes, steps) {
    const rank = x.dims.length;
    const chosen = axes ? whole(axes).map((axis) => axisOf(axis, rank)) : count(starts.data.length);
    const own = stepsOf(x.dims);
    const dims = [...x.dims];
    const walked = [...own];
    let begin = 0;
    chosen.forEach((d, place) => {
      const step = steps ? steps.data[place] : 1;
      const n = x.dims[d];
      const low = step > 0 ? 0 : -1;
      const high = step > 0 ? n : n - 1;
      const inside = (value) => Math.min(Math.max(value < 0 ? value + n : value, low), high);
      const start = step > 0 ? inside(starts.data[place]) : Math.min(inside(starts.data[place]), n - 1);
      const end = ends.data[place] < -n ? low : inside(ends.data[place]);
      dims[d] = Math.max(0, Math.ceil((end - start) / step));
      walked[d] = own[d] * step;
      begin += start * own[d];
    });
    return tensor(dims, Float64Array.from(walk(dims, walked, begin), (place) => x.data[place]), x.kind);
  }

  /* The places of the elements that rows of `indices` name in x, after `batch` dimensions that both share. */
  function placesOf(x, indices, batch = 0) {
    const steps = stepsOf(x.dims);
    const depth = indices.dims[indices.dims.length - 1];
    const rows = indices.data.length / depth;
    const within = rows / size(x.dims.slice(0, batch));
    const one = size(x.dims.slice(batch));
    return Int32Array.from(count(rows), (row) => {
      let place = Math.floor(row / within) * one;
      for (let d = 0; d < depth; d++) place += axisOf(indices.data[row * depth + d], x.dims[batch + d]) * steps[batch + d];
      return place;
    });
  }

  /* The places in x of elements that differ from those of `indices` along one axis. */
  function placesAlong(x, indices, axis) {
    const at = axisOf(axis, x.dims.length);
    const steps = stepsOf(x.dims);
    const places = walk(indices.dims, steps.map((step, d) => (d === at ? 0 : step)));
    return places.map((place, i) => place + axisOf(indices.data[i], x.dims[at]) * steps[at]);
  }

  const roundTo = { float: Math.fround, double: (value) => value, int: Math.trunc, bool: (value) => (value !== 0 ? 1 : 0) };
  const truth = (f) => (a, b) => (f(a, b) ? 1 : 0);
  const compare = (f) => ([a, b]) => pairs(a, b, truth(f), "bool");
  const [equal, less, greater] = [compare((a, b) => a === b), compare((a, b) => a < b), compare((a, b) => a > b)];

  const ops = {
    Identity([x]) { return x; },
    Cast([x], attrs) { return each(x, roundTo[attrs.to], attrs.to); },
    Not([x]) { return each(x, (value) => (value ? 0 : 1)); },
    Neg([x]) { return each(x, (value) => -value); },
    Abs([x]) { return each(x, Math.abs); },
    Exp([x]) { return each(x, Math.exp); },
    Log([x]) { return each(x, Math.log); },
    Sqrt([x]) { return each(x, Math.sqrt); },
    Sign([x]) { return each(x, Math.sign); },
    Tanh([x]) { return each(x, Math.tanh); },
    Sigmoid([x]) { return each(x, (value) => 1 / (1 + Math.exp(-value))); },
    Softplus([x]) { return each(x, (value) => Math.max(value, 0) + Math.log1p(Math.exp(-Math.abs(value)))); },
    Relu([x]) { return each(x, (value) => (value < 0 ? 0 : value)); },
    Reciprocal([x]) { return each(x, (value) => 1 / value); },
    Floor([x]) { return each(x, Math.floor); },
    IsNaN([x]) { return each(x, (value) => (Number.isNaN(value) ? 1 : 0), "bool"); },
    IsInf([x], attrs) {
      const { detect_negative: low = 1, detect_positive: high = 1 } = attrs;
      return each(x, (value) => ((high && value === Infinity) || (low && value === -Infinity) ? 1 : 0), "bool");
    },
    Add([a, b]) { return pairs(a, b, (x, y) => x + y); },
    Sub([a, b]) { return pairs(a, b, (x, y) => x - y); },
    Mul([a, b]) { return pairs(a, b, (x, y) => x * y); },
    Div([a, b]) { return pairs(a, b, a.kind === "int" ? (x, y) => Math.trunc(x / y) : (x, y) => x / y); },
    Pow([a, b]) { return pairs(a, b, Math.pow); },
    Max(inputs) { return folded(inputs, Math.max); },
    Min(inputs) { return folded(inputs, Math.min); },
    Sum(inputs) { return folded(inputs, (x, y) => x + y); },
    Less: less,
    Greater: greater,
    Equal: equal,
    LessOrEqual: compare((a, b) => a <= b),
    GreaterOrEqual: compare((a, b) => a >= b),
    And: compare((a, b) => a && b),
    Or: compare((a, b) => a || b),
    Where([condition, a, b]) {
      const dims = joined(condition.dims, a.dims, b.dims);
      const [which, one, two] = [condition, a, b].map((x) => spread(x, dims));
      return tensor(dims, Float64Array.from(which, (place, i) => (condition.data[place] ? a.data[one[i]] : b.data[two[i]])), a.kind);
    },
    Clip([x, low, high]) {
      const [least, greatest] = [low ? low.data[0] : -Infinity, high ? high.data[0] : Infinity];
      return each(x, (value) => (value < least ? least : value > greatest ? greatest : value));
    },
    Shape([x], attrs) {
      const rank = x.dims.length;
      const found = x.dims.slice(axisOf(attrs.start ?? 0, rank), attrs.end === undefined ? rank : axisOf(attrs.end, rank));
      return tensor([found.length], Float64Array.from(found), "int");
    },
    Size([x]) { return tensor([], Float64Array.of(x.data.length), "int"); },
    Reshape([x, shape], attrs) { return reshaped(x, shape, attrs); },
    Flatten([x], attrs) {
      const outer = size(x.dims.slice(0, axisOf(attrs.axis ?? 1, x.dims.length)));
      return tensor([outer, x.data.length / outer], x.data, x.kind);
    },
    Unsqueeze([x, axes], attrs) {
      const given = axes ? whole(axes) : attrs.axes;
      const rank = x.dims.length + given.length;
      const added = given.map((axis) => axisOf(axis, rank));
      const rest = [...x.dims];
      return tensor(count(rank).map((d) => (added.includes(d) ? 1 : rest.shift())), x.data, x.kind);
    },
    Squeeze([x, axes], attrs) {
      const given = axes ? whole(axes) : attrs.axes;
      const gone = given ? given.map((axis) => axisOf(axis, x.dims.length)) : null;
      return tensor(x.dims.filter((n, d) => (gone ? !gone.includes(d) : n !== 1)), x.data, x.kind);
    },
    Transpose([x], attrs) { return permuted(x, attrs.perm || count(x.dims.length).reverse()); },
    Expand([x, shape]) {
      const dims = joined(x.dims, whole(shape));
      return tensor(dims, Float64Array.from(spread(x, dims), (place) => x.data[place]), x.kind);
    },
    Concat(inputs, attrs) {
      const at = axisOf(attrs.axis, inputs[0].dims.length);
      const outer = size(inputs[0].dims.slice(0, at));
      const parts = inputs.map((x) => size(x.dims.slice(at)));
      const found = new Float64Array(outer * parts.reduce((a, b) => a + b, 0));
      let to = 0;
      for (let o = 0; o < outer; o++)
        inputs.forEach((x, place) => {
          found.set(x.data.subarray(o * parts[place], (o + 1) * parts[place]), to);
          to += parts[place];
        });
      const total = inputs.reduce((n, x) => n + x.dims[at], 0);
      return tensor(inputs[0].dims.map((n, d) => (d === at ? total : n)), found, inputs[0].kind);
    },
    Slice([x, starts, ends, axes, steps]) { return sliced(x, starts, ends, axes, steps); },
    Split([x, sizes], attrs) {
      const at = axisOf(attrs.axis ?? 0, x.dims.length);
      const parts = sizes ? whole(sizes) : new Array(attrs.num_outputs).fill(x.dims[at] / attrs.num_outputs);
      let start = 0;
      const one = (value) => tensor([1], Float64Array.of(value), "int");
      return { all: parts.map((n) => sliced(x, one(start), one((start += n)), one(at))) };
    },
    Gather([x, indices], attrs) {
      const [outer, n, inner, at] = around(x, attrs.axis ?? 0);
      const found = new Float64Array(outer * indices.data.length * inner);
      let to = 0;
      for (let o = 0; o < outer; o++)
        for (const index of indices.data) {
          const start = (o * n + axisOf(index, n)) * inner;
          found.set(x.data.subarray(start, start + inner), to);
          to += inner;
        }
      return tensor([...x.dims.slice(0, at), ...indices.dims, ...x.dims.slice(at + 1)], found, x.kind);
    },
    GatherElements([x, indices], attrs) {
      const places = placesAlong(x, indices, attrs.axis ?? 0);
      return tensor(indices.dims, Float64Array.from(places, (place) => x.data[place]), x.kind);
    },
    GatherND([x, indices], attrs) {
      const batch = attrs.batch_dims ?? 0;
      const depth = indices.dims[indices.dims.length - 1];
      const rest = x.dims.slice(batch + depth);
      const inner = size(rest);
      const places = placesOf(x, indices, batch);
      const found = new Float64Array(places.length * inner);
      places.forEach((place, row) => found.set(x.data.subarray(place, place + inner), row * inner));
      return tensor([...indices.dims.slice(0, -1), ...rest], found, x.kind);
    },
    ScatterND([x, indices, updates]) {
      const data = Float64Array.from(x.data);
      const inner = size(x.dims.slice(indices.dims[indices.dims.length - 1]));
      placesOf(x, indices).forEach((place, row) => data.set(updates.data.subarray(row * inner, (row + 1) * inner), place));
      return like(x, data);
    },
    ScatterElements([x, indices, updates], attrs) {
      const data = Float64Array.from(x.data);
      placesAlong(x, indices, attrs.axis ?? 0).forEach((place, i) => { data[place] = updates.data[i]; });
      return like(x, data);
    },
    NonZero([x]) {
      const found = count(x.data.length).filter((place) => x.data[place]);
      const steps = stepsOf(x.dims);
      const data = steps.flatMap((step, d) => found.map((place) => Math.floor(place / step) % x.dims[d]));
      return tensor([x.dims.length, found.length], Float64Array.from(data), "int");
    },
    Range([start, end, step]) {
      const n = Math.max(0, Math.ceil((end.data[0] - start.data[0]) / step.data[0]));
      return tensor([n], Float64Array.from(count(n), (i) => start.data[0] + i * step.data[0]), start.kind);
    },
    ConstantOfShape([shape], attrs) {
      const found = empty(whole(shape), attrs.value ? attrs.value.kind : "float");
      found.data.fill(attrs.value ? attrs.value.data[0] : 0);
      return found;
    },
    TopK([x, k], attrs) {
      const [outer, n, inner, at] = around(x, attrs.axis ?? -1);
      const taken = k.data[0];
      const dims = x.dims.map((own, d) => (d === at ? taken : own));
      const [values, places] = [empty(dims, x.kind), empty(dims, "int")];
      const sign = (attrs.largest ?? 1) ? -1 : 1;
      for (let o = 0; o < outer; o++)
        for (let i = 0; i < inner; i++) {
          const value = (place) => x.data[(o * n + place) * inner + i];
          const order = count(n).sort((a, b) => sign * (value(a) - value(b)) || a - b);
          for (let j = 0; j < taken; j++) {
            values.data[(o * taken + j) * inner + i] = value(order[j]);
            places.data[(o * taken + j) * inner + i] = order[j];
          }
        }
      return { all: [values, places] };
    },
    ArgMax([x], attrs) {
      const found = reduced(x, null, { axes: [attrs.axis ?? 0], keepdims: attrs.keepdims }, (part) => part.indexOf(most(part)));
      return tensor(found.dims, found.data, "int");
    },
    ReduceSum([x, axes], attrs) { return reduced(x, axes, attrs, sum); },
    ReduceMean([x, axes], attrs) { return reduced(x, axes, attrs, (part) => sum(part) / part.length); },
    ReduceMax([x, axes], attrs) { return reduced(x, axes, attrs, most); },
    ReduceMin([x, axes], attrs) { return reduced(x, axes, attrs, (part) => part.reduce((a, b) => Math.min(a, b), Infinity)); },
    ReduceProd([x, axes], attrs) { return reduced(x, axes, attrs, (part) => part.reduce((a, b) => a * b, 1)); },
    ReduceL2([x, axes], attrs) { return reduced(x, axes, attrs, (part) => Math.sqrt(part.reduce((total, value) => total + value * value, 0))); },
    ReduceSumSquare([x, axes], attrs) { return reduced(x, axes, attrs, (part) => part.reduce((total, value) => total + value * value, 0)); },
    ReduceLogSumExp([x, axes], attrs) { return reduced(x, axes, attrs, logSumExp); },
    CumSum([x, axis]) { return along(x, axis.data[0], (part) => part.forEach((value, i) => { if (i) part[i] += part[i - 1]; })); },
    Softmax([x], attrs) {
      return along(x, attrs.axis ?? -1, (part) => {
        const total = logSumExp(part);
        part.forEach((value, i) => { part[i] = Math.exp(value - total); });
      });
    },
    LogSoftmax([x], attrs) {
      return along(x, attrs.axis ?? -1, (part) => {
        const total = logSumExp(part);
        part.forEach((value, i) => { part[i] = value - total; });
      });
    },
    LayerNormalization([x, scale, bias], attrs) {
      const at = axisOf(attrs.axis ?? -1, x.dims.length);
      const n = size(x.dims.slice(at));
      const data = new Float64Array(x.data.length);
      for (let start = 0; start < data.length; start += n) {
        const part = x.data.subarray(start, start + n);
        const mean = sum(part) / n;
        const spreadOf = part.reduce((total, value) => total + (value - mean) ** 2, 0) / n;
        const factor = 1 / Math.sqrt(spreadOf + (attrs.epsilon ?? 1e-5));
        for (let i = 0; i < n; i++) data[start + i] = (part[i] - mean) * factor * scale.data[i] + (bias ? bias.data[i] : 0);
      }
      return like(x, data);
    },
    Gemm([a, b, c], attrs) {
      const found = product(attrs.transA ? permuted(a, [1, 0]) : a, attrs.transB ? permuted(b, [1, 0]) : b);
      const scaled = each(found, (value) => value * (attrs.alpha ?? 1));
      return c ? pairs(scaled, c, (x, y) => x + y * (attrs.beta ?? 1)) : scaled;
    },
    MatMul([a, b]) { return matmul(a, b); },
    Einsum(inputs, attrs) { return einsum(inputs, attrs.equation); },
    SplitToSequence([x, sizes], attrs) {
      const at = axisOf(attrs.axis ?? 0, x.dims.length);
      const one = (value) => tensor([1], Float64Array.of(value), "int");
      const n = x.dims[at];
      const lengths = !sizes ? new Array(n).fill(1)
        : sizes.dims.length ? whole(sizes)
          : count(Math.ceil(n / sizes.data[0])).map((place) => Math.min(sizes.data[0], n - place * sizes.data[0]));
      let start = 0;
      const parts = lengths.map((own) => sliced(x, one(start), one((start += own)), one(at)));
      if (sizes || (attrs.keepdims ?? 1)) return { sequence: parts };
      return { sequence: parts.map((part) => tensor(part.dims.filter((_, d) => d !== at), part.data, part.kind)) };
    },
    SequenceAt([sequence, place]) { return sequence.sequence[axisOf(place.data[0], sequence.sequence.length)]; },
  };

  /* The outputs of a graph, name → tensor, for inputs name → tensor. */
  function run(graph, inputs) {
    const known = Object.assign(Object.create(null), graph.constants, inputs);
    for (const [op, from, to, attrs] of graph.nodes) {
      const found = ops[op](from.map((name) => (name === "" ? undefined : known[name])), attrs || {});
      if (found.all) to.forEach((name, place) => { known[name] = found.all[place]; });
      else known[to[0]] = found;
    }
    return Object.fromEntries(graph.outputs.map((name) => [name, known[name]]));
  }
  run.known = Object.keys(ops);
  return run;
})();

/* Graphs and arrays from a page: constants are places in one block of bytes, small ones are written out. */
function readTensors(described, bytes) {
  const types = { float: Float32Array, double: Float64Array, int: Int32Array, bool: Uint8Array };
  const special = { nan: NaN, inf: Infinity, "-inf": -Infinity };
  return Object.fromEntries(
    Object.entries(described).map(([name, { kind, dims, at, values }]) => {
      const n = dims.reduce((product, length) => product * length, 1);
      const data = values
        ? Float64Array.from(values, (value) => (typeof value === "string" ? special[value] : value))
        : Float64Array.from(new types[kind](bytes, at, n));
      return [name, { dims, data, kind }];
    }),
  );
}
