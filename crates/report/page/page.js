// Draws the charts that the program has described, and keeps them in step: one crosshair, one zoom per step, one theme.
// Loads nothing, stores nothing; what the reader chose is in the address after the #.
(() => {
  'use strict';
  const root = document.documentElement;
  const troubles = [];
  addEventListener('error', event => troubles.push(String(event.message)));
  addEventListener('securitypolicyviolation', event => troubles.push('blocked: ' + event.blockedURI));
  const data = JSON.parse(document.getElementById('data').textContent);
  const announce = document.getElementById('announce');
  const PHONE = matchMedia('(max-width: 720px)');
  const SANS = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
  const DASH = { solid: [], dashed: [6, 4], dotted: [1.5, 3] };
  const plots = [];

  // Numbers, as the program writes them.
  const three = v => {
    const size = Math.abs(v);
    if (v === 0) return '0';
    return Number.isInteger(v) ? v.toLocaleString('en-US') : size < 9.995 ? v.toFixed(2) : size < 99.95 ? v.toFixed(1) : Math.round(v).toLocaleString('en-US');
  };
  const latency = us => us < 999.5 ? three(us) + ' us'
    : us < 999500 ? three(us / 1e3) + ' ms' : three(us / 1e6) + ' s';
  const bytes = v => {
    const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
    let at = 0;
    while (v >= 999.5 && at < units.length - 1) { v /= 1000; at++; }
    return (at ? three(v) : Math.round(v)) + ' ' + units[at];
  };
  const FULL = {
    transactions_per_second: three, rows_per_second: three, per_second: three, count: three, us: latency,
    bytes_per_second: v => bytes(v) + '/s', cores: v => v.toFixed(2), factor: v => v.toFixed(2) + 'x',
    sessions: three, transactions: three, bytes, percent: v => three(v) + ' %',
  };
  // Axis labels: as short as they may be.
  const bare = text => text.replace(/\.0+(?=\D|$)/, '').replace(/(\.\d*?)0+(?=\D|$)/, '$1');
  const short = (unit, v) => {
    if (unit === 'us') return bare(latency(Math.round(v * 1000) / 1000));
    if (unit === 'bytes_per_second' || unit === 'bytes') return bare(bytes(v));
    if (unit === 'factor') return bare(v.toFixed(2)) + 'x';
    if (v >= 1e6) return bare((v / 1e6).toPrecision(3)) + 'M';
    if (v >= 1e4) return bare((v / 1e3).toPrecision(3)) + 'k';
    return bare(String(Math.round(v * 1000) / 1000));
  };
  const clock = s => {
    if (s < 120) return bare(s.toFixed(1)) + ' s';
    const whole = Math.round(s), pad = n => String(n).padStart(2, '0');
    if (whole >= 172800) return Math.floor(whole / 86400) + ' d' + (whole % 86400 < 60 ? '' : ' ' + pad(Math.floor(whole / 3600) % 24) + ':' + pad(Math.floor(whole / 60) % 60));
    return whole < 3600 ? Math.floor(whole / 60) + ':' + pad(whole % 60)
      : Math.floor(whole / 3600) + ':' + pad(Math.floor(whole / 60) % 60) + ':' + pad(whole % 60);
  };
  const percentile = nines => {
    const percent = 100 * (1 - Math.pow(10, -nines));
    return 'p' + bare(percent.toFixed(Math.max(0, Math.ceil(nines) - 1)));
  };

  // Charts over time share crosshair and zoom.
  const isTimed = chart => chart.kind !== 'nines' && chart.kind !== 'curve';

  // What the reader chose.
  const state = {};
  const readHash = () => {
    for (const key of Object.keys(state)) delete state[key];
    for (const part of location.hash.slice(1).split('&')) {
      const [key, ...value] = part.split('=');
      if (key) state[decodeURIComponent(key)] = decodeURIComponent(value.join('='));
    }
  };
  const writeHash = () => {
    const text = Object.entries(state).map(([key, value]) => value === '' ? key : key + '=' + encodeURIComponent(value)).join('&');
    // Browsers refuse to be told the same address hundreds of times, as a page of many charts would.
    if (location.hash.slice(1) !== text) history.replaceState(null, '', text ? '#' + text : location.pathname + location.search);
  };

  // Colours come from the style sheet, so that the page and its charts never differ.
  let ink = {};
  const readColours = () => {
    const style = getComputedStyle(root), get = name => style.getPropertyValue('--' + name).trim();
    ink = {};
    for (const name of ['paper', 'line', 'ink', 'quiet', 'faint', 'main', 'second', 'bad', 'aside', 'halo']) ink[name] = get(name);
    ink.fill = { main: get('main-fill'), second: get('second-fill'), bad: get('bad-fill') };
    ink.areas = Array.from({ length: 8 }, (_, area) => get('c' + area));
    ink.tone = { main: ink.main, quiet: ink.faint, second: ink.second, bad: ink.bad, ink: ink.ink };
    const stops = get('heat').split(',').map(text => [1, 3, 5].map(at => parseInt(text.trim().slice(at, at + 2), 16)));
    ink.heat = Array.from({ length: 64 }, (_, step) => {
      const at = step / 63 * (stops.length - 1), from = Math.min(Math.floor(at), stops.length - 2);
      const mixed = stops[from].map((low, c) => Math.round(low + (stops[from + 1][c] - low) * (at - from)));
      return 'rgb(' + mixed.join(',') + ')';
    });
  };

  // Drawing hooks.
  const px = () => devicePixelRatio || 1;
  const bands = (step, chart, first) => u => {
    const { ctx, bbox } = u, ratio = px();
    ctx.save();
    ctx.beginPath(); ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height); ctx.clip();
    let free = -Infinity;
    step.bands.forEach((band, index) => {
      const from = u.valToPos(band.from, 'x', true), to = u.valToPos(band.to, 'x', true);
      if (band.kind !== 'phase') {
        ctx.fillStyle = band.kind === 'outage' ? ink.fill.bad : ink.aside;
        ctx.fillRect(from, bbox.top, to - from, bbox.height);
      } else if (index) {
        ctx.fillStyle = ink.line;
        ctx.fillRect(Math.round(from), bbox.top, ratio, bbox.height);
      }
      if (band.kind === 'aside') {
        ctx.strokeStyle = ink.line; ctx.lineWidth = ratio; ctx.beginPath();
        for (let x = from - bbox.height; x < to; x += 9 * ratio) { ctx.moveTo(x, bbox.top + bbox.height); ctx.lineTo(x + bbox.height, bbox.top); }
        ctx.save(); ctx.clip(new Path2D(`M${from},${bbox.top}H${to}V${bbox.top + bbox.height}H${from}Z`)); ctx.stroke(); ctx.restore();
      }
      if (!first || !band.label) return;
      ctx.font = 11 * ratio + 'px ' + SANS; ctx.textBaseline = 'top'; ctx.textAlign = 'left';
      const left = Math.max(from, bbox.left) + 5 * ratio, width = ctx.measureText(band.label).width;
      if (left + width < to && left > free) {
        ctx.fillStyle = ink.halo; ctx.fillRect(left - 2 * ratio, bbox.top + 2 * ratio, width + 4 * ratio, 14 * ratio);
        ctx.fillStyle = ink.faint; ctx.fillText(band.label, left, bbox.top + 3 * ratio);
        free = left + width;
      }
    });
    ctx.restore();
  };
  const marks = (step, first) => u => {
    const { ctx, bbox } = u, ratio = px();
    ctx.save();
    ctx.font = 11 * ratio + 'px ' + SANS; ctx.textBaseline = 'top';
    let free = -Infinity;
    for (const mark of step.marks) {
      const x = Math.round(u.valToPos(mark.at, 'x', true)) + .5;
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = ink.quiet; ctx.lineWidth = ratio; ctx.setLineDash([2 * ratio, 3 * ratio]);
      ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
      ctx.setLineDash([]); ctx.fillStyle = ink.quiet;
      ctx.beginPath(); ctx.moveTo(x - 4 * ratio, bbox.top); ctx.lineTo(x + 4 * ratio, bbox.top); ctx.lineTo(x, bbox.top + 6 * ratio); ctx.fill();
      if (!first) continue;
      const width = ctx.measureText(mark.label).width, fits = x + 7 * ratio + width < bbox.left + bbox.width;
      const left = fits ? x + 6 * ratio : x - 6 * ratio - width;
      if (left < free || left < bbox.left) continue;
      ctx.fillStyle = ink.halo; ctx.fillRect(left - ratio, bbox.top + ratio, width + 2 * ratio, 14 * ratio);
      ctx.fillStyle = ink.quiet; ctx.textAlign = 'left'; ctx.fillText(mark.label, left, bbox.top + 2 * ratio);
      free = left + width + 4 * ratio;
    }
    ctx.restore();
  };
  const heat = chart => u => {
    if (!chart.heat) return;
    const { ctx, bbox } = u, { edges, columns } = chart.heat;
    const most = columns.reduce((best, column) => column.slice(1).reduce((a, b) => Math.max(a, b), best), 1);
    const y = edges.map(edge => Math.round(u.valToPos(edge, 'y', true)));
    ctx.save();
    ctx.beginPath(); ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height); ctx.clip();
    columns.forEach((column, index) => {
      if (!column.length) return;
      const middle = chart.x[index];
      const left = Math.round(u.valToPos(middle - chart.column_s / 2, 'x', true));
      const right = Math.round(u.valToPos(middle + chart.column_s / 2, 'x', true));
      for (let at = 1; at < column.length; at++) {
        if (!column[at]) continue;
        const band = column[0] + at - 1;
        const share = most > 1 ? Math.log(column[at]) / Math.log(most) : 1;
        ctx.fillStyle = ink.heat[Math.round(share * 63)];
        ctx.fillRect(left, y[band + 1], right - left, Math.max(1, y[band] - y[band + 1]));
      }
    });
    // A halo, so that the lines are seen on light and dark cells alike.
    ctx.strokeStyle = ink.halo; ctx.lineWidth = 4.5 * px(); ctx.lineJoin = 'round';
    for (const one of chart.series) {
      if (one.dash === 'dotted') continue;
      ctx.beginPath();
      let down = false;
      one.values.forEach((value, index) => {
        if (value == null) { down = false; return; }
        const x = u.valToPos(chart.x[index], 'x', true), top = u.valToPos(Math.max(value, edges[0]), 'y', true);
        if (down) ctx.lineTo(x, top); else ctx.moveTo(x, top);
        down = true;
      });
      ctx.stroke();
    }
    ctx.restore();
  };

  // A value over time stands for its whole column, so it is drawn as wide as that: nothing was measured in between.
  const steps = chart => (u, index, from, to) => {
    const stroke = new Path2D(), fill = new Path2D(), values = u.data[index], half = chart.column_s / 2;
    const ground = u.valToPos(0, 'y', true);
    let last = null;
    for (let at = 0; at < values.length; at++) {
      if (values[at] == null) { last = null; continue; }
      const left = u.valToPos(chart.x[at] - half, 'x', true), right = u.valToPos(chart.x[at] + half, 'x', true);
      const top = u.valToPos(values[at], 'y', true);
      if (last == null) stroke.moveTo(left, top); else stroke.lineTo(left, top);
      stroke.lineTo(right, top);
      fill.rect(left, Math.min(top, ground), right - left + .5, Math.abs(ground - top));
      last = top;
    }
    return { stroke, fill, clip: null, band: null, gaps: null, flags: 3 };
  };

  // Layers, one on the other. Each has a pattern of its own beside its colour (the legend's are AREA_HATCHES), and its name where it
  // is thick enough.
  const HATCH = [[], [[0, 8, 8, 0]], [[0, 0, 8, 8]], [[0, 8, 8, 0], [0, 0, 8, 8]], [[0, 4, 8, 4]], [[4, 0, 4, 8]], [[3, 4, 5, 4]], [[0, 4, 16, 4]]];
  const hatch = (ctx, area) => {
    const lines = HATCH[area];
    if (!lines.length) return null;
    const ratio = px(), tile = document.createElement('canvas'), size = area === 7 ? 16 : 8;
    tile.width = tile.height = size * ratio;
    const pen = tile.getContext('2d');
    pen.scale(ratio, ratio); pen.strokeStyle = ink.halo; pen.lineWidth = 1; pen.globalAlpha = .55;
    for (const [x0, y0, x1, y1] of lines) for (const shift of [-8, 0, 8]) {
      const slant = x0 !== x1 && y0 !== y1;
      if (!slant && shift) continue;
      pen.beginPath(); pen.moveTo(x0 + shift, y0); pen.lineTo(x1 + shift, y1); pen.stroke();
    }
    return ctx.createPattern(tile, 'repeat');
  };
  const layers = chart => chart.series.filter(one => one.area != null);
  const pileHeight = (chart, min, max) => {
    let most = 0;
    chart.x.forEach((x, index) => {
      if (min != null && (x + chart.column_s / 2 < min || x - chart.column_s / 2 > max)) return;
      const pile = layers(chart).reduce((sum, one) => sum + (one.values[index] || 0), 0);
      most = chart.series.reduce((best, one) => one.area == null ? Math.max(best, one.values[index] || 0) : best, Math.max(most, pile));
    });
    return most;
  };
  const pile = chart => u => {
    const { ctx, bbox } = u, ratio = px(), half = chart.column_s / 2, ground = chart.x.map(() => 0);
    ctx.save();
    ctx.beginPath(); ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height); ctx.clip();
    const edges = chart.x.map(x => [Math.round(u.valToPos(x - half, 'x', true)), Math.round(u.valToPos(x + half, 'x', true))]);
    const names = [];
    for (const one of layers(chart)) {
      const shape = new Path2D(), top = new Path2D();
      let run = null, best = null, joined = false;
      chart.x.forEach((_, index) => {
        const value = one.values[index];
        if (value == null) { run = null; joined = false; return; }
        const low = u.valToPos(ground[index], 'y', true);
        ground[index] += value;
        const high = u.valToPos(ground[index], 'y', true), [left, right] = edges[index];
        if (value > 0) shape.rect(left, high, right - left, low - high);
        if (joined) top.lineTo(left, high); else top.moveTo(left, high);
        top.lineTo(right, high);
        joined = true;
        // The longest stretch that is thick enough for a name.
        const fits = low - high >= 14 * ratio && right > bbox.left && left < bbox.left + bbox.width;
        if (!fits || (run && (run.low < high + 14 * ratio || run.high > low - 14 * ratio))) run = null;
        if (fits) {
          run = run ? { ...run, right, low: Math.min(run.low, low), high: Math.max(run.high, high) } : { left: Math.max(left, bbox.left), right, low, high };
          if (run.low - run.high < 14 * ratio) run = null;
          else if (!best || run.right - run.left > best.right - best.left) best = { ...run };
        }
      });
      ctx.fillStyle = ink.areas[one.area]; ctx.fill(shape);
      const pattern = hatch(ctx, one.area);
      if (pattern) { ctx.fillStyle = pattern; ctx.fill(shape); }
      ctx.strokeStyle = ink.paper; ctx.lineWidth = ratio; ctx.stroke(top);
      if (best) names.push([one.name, best]);
    }
    ctx.font = '600 ' + 11 * ratio + 'px ' + SANS; ctx.textBaseline = 'middle'; ctx.textAlign = 'center';
    for (const [name, { left, right, low, high }] of names) {
      const width = ctx.measureText(name).width + 8 * ratio, x = (left + Math.min(right, bbox.left + bbox.width)) / 2, y = (low + high) / 2;
      if (right - left < width) continue;
      ctx.fillStyle = ink.halo; ctx.fillRect(x - width / 2, y - 7 * ratio, width, 14 * ratio);
      ctx.fillStyle = ink.ink; ctx.fillText(name, x, y);
    }
    ctx.restore();
  };

  // What happened: bars for what lasted, diamonds for moments, the worst in another colour and filled.
  const lanes = chart => u => {
    const { ctx, bbox } = u, ratio = px(), { names, items } = chart.lanes, high = bbox.height / names.length;
    ctx.save();
    ctx.beginPath(); ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height); ctx.clip();
    ctx.font = 11 * ratio + 'px ' + SANS; ctx.textBaseline = 'middle'; ctx.textAlign = 'left';
    ctx.fillStyle = ink.line;
    names.forEach((_, at) => { if (at) ctx.fillRect(bbox.left, Math.round(bbox.top + at * high), bbox.width, ratio); });
    const end = bbox.left + bbox.width, places = items.map((item, index) => {
      const left = u.valToPos(chart.x[index], 'x', true), right = u.valToPos(item.to, 'x', true);
      return { item, left, right: Math.max(right, left), middle: bbox.top + (item.lane + .5) * high };
    });
    for (const { item, left, right, middle } of places) {
      ctx.strokeStyle = item.bad ? ink.bad : ink.main; ctx.lineWidth = 1.25 * ratio;
      const half = 5 * ratio;
      ctx.beginPath();
      if (right - left < 3 * ratio) {
        ctx.moveTo(left - half, middle); ctx.lineTo(left, middle - half); ctx.lineTo(left + half, middle); ctx.lineTo(left, middle + half); ctx.closePath();
      } else ctx.rect(left, middle - 7.5 * ratio, right - left, 15 * ratio);
      ctx.fillStyle = item.bad ? ink.bad : ink.fill.main; ctx.fill(); ctx.stroke();
    }
    // Texts where there is room until the next thing of the lane.
    places.forEach(({ item, left, right, middle }, index) => {
      const inside = Math.max(left, bbox.left) + 5 * ratio, width = ctx.measureText(item.text).width;
      const next = places.slice(index + 1).reduce((best, other) => other.item.lane === item.lane ? Math.min(best, other.left - 7 * ratio) : best, end);
      const from = inside + width < Math.min(right, next) ? inside : Math.max(right, left + 5 * ratio) + 5 * ratio;
      if (from < bbox.left || from > end) return;
      let text = item.text;
      while (text.length > 6 && from + ctx.measureText(text).width > next) text = text.slice(0, -2).trimEnd() + '…';
      if (from + ctx.measureText(text).width > next) return;
      ctx.fillStyle = from === inside && item.bad ? ink.paper : ink.quiet; ctx.fillText(text, from, middle);
    });
    ctx.restore();
  };
  // What is going on at a moment, or happened within a few pixels of it.
  const going = (chart, at, near) => chart.lanes.items.filter((item, index) => chart.x[index] - near <= at && at <= item.to + near);

  // What stands beside the points of a curve: the fitted law, whiskers of repeats, places that are marked, labels.
  const law = ({ lambda, sigma, kappa }, n) => lambda * n / (1 + sigma * (n - 1) + kappa * n * (n - 1));
  const marked = (u, axis) => {
    const { ctx, bbox } = u, ratio = px();
    ctx.font = 11 * ratio + 'px ' + SANS; ctx.textBaseline = 'top'; ctx.textAlign = 'left';
    let row = 0, last = -Infinity;
    for (const mark of [...axis.marks || []].sort((a, b) => a.at - b.at)) {
      const x = Math.round(u.valToPos(mark.at, 'x', true)) + .5, width = ctx.measureText(mark.label).width;
      ctx.strokeStyle = ink.quiet; ctx.lineWidth = ratio; ctx.setLineDash([2 * ratio, 3 * ratio]);
      ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke(); ctx.setLineDash([]);
      const left = x + 6 * ratio + width < bbox.left + bbox.width ? x + 5 * ratio : x - 5 * ratio - width;
      row = left < last ? row + 1 : 0;
      last = left + width + 4 * ratio;
      ctx.fillStyle = ink.halo; ctx.fillRect(left - ratio, bbox.top + (2 + 15 * row) * ratio, width + 2 * ratio, 14 * ratio);
      ctx.fillStyle = ink.quiet; ctx.fillText(mark.label, left, bbox.top + (3 + 15 * row) * ratio);
    }
  };
  const behindPoints = chart => u => {
    const { ctx, bbox } = u, ratio = px(), axis = chart.axis;
    ctx.save();
    ctx.beginPath(); ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height); ctx.clip();
    for (const one of chart.series) {
      ctx.strokeStyle = ink.tone[one.tone]; ctx.lineWidth = 1.75 * ratio; ctx.lineJoin = 'round';
      if (one.law) {
        ctx.setLineDash(DASH[one.dash].map(length => length * ratio));
        ctx.beginPath();
        const from = u.valToPos(chart.x[0], 'x'), to = u.valToPos(chart.x[chart.x.length - 1], 'x');
        for (let at = 0; at <= 160; at++) {
          const n = u.posToVal(from + (to - from) * at / 160, 'x');
          ctx.lineTo(u.valToPos(n, 'x', true), u.valToPos(law(one.law, n), 'y', true));
        }
        ctx.stroke();
      }
      ctx.setLineDash([]);
      if (one.range) chart.x.forEach((n, index) => {
        if (one.range.low[index] == null) return;
        const x = u.valToPos(n, 'x', true);
        ctx.beginPath();
        ctx.moveTo(x, u.valToPos(one.range.low[index], 'y', true)); ctx.lineTo(x, u.valToPos(one.range.high[index], 'y', true));
        ctx.stroke();
      });
    }
    const first = chart.series[0], points = (axis.path || []).map(index =>
      [u.valToPos(chart.x[index], 'x', true), u.valToPos(first.values[index], 'y', true)]);
    ctx.strokeStyle = ink.tone[first.tone]; ctx.lineWidth = 1.25 * ratio;
    ctx.beginPath();
    for (const [x, y] of points) ctx.lineTo(x, y);
    ctx.stroke();
    ctx.restore();
  };
  const beforePoints = chart => u => {
    const { ctx } = u, ratio = px(), first = chart.series[0];
    ctx.save();
    marked(u, chart.axis);
    ctx.font = 11 * ratio + 'px ' + SANS; ctx.textBaseline = 'bottom'; ctx.textAlign = 'center';
    (chart.axis.labels || []).forEach((label, index) => {
      const x = u.valToPos(chart.x[index], 'x', true), y = u.valToPos(first.values[index], 'y', true), width = ctx.measureText(label).width;
      ctx.fillStyle = ink.halo; ctx.fillRect(x - width / 2 - ratio, y - 20 * ratio, width + 2 * ratio, 13 * ratio);
      ctx.fillStyle = ink.quiet; ctx.fillText(label, x, y - 7 * ratio);
    });
    ctx.restore();
  };
  // Of the measured places as many are written as have room.
  const sparse = (u, splits, text) => {
    let free = -Infinity;
    return splits.map(v => {
      const label = text(v), half = label.length * 3.4, x = u.valToPos(v, 'x');
      if (x - half < free) return '';
      free = x + half + 8;
      return label;
    });
  };

  const oneTwoFive = (low, high) => {
    const all = [], wide = Math.log10(high / low) > 2.2;
    for (let ten = Math.pow(10, Math.floor(Math.log10(low))); ten <= high; ten *= 10)
      for (const digit of wide ? [1] : [1, 2, 5]) if (ten * digit >= low && ten * digit <= high) all.push(ten * digit);
    return all;
  };
  const NINES = [0, Math.log10(2), 1, 2, 3, 4, 5, 6, 7, 8];

  const options = (step, chart, host, first) => {
    const timed = isTimed(chart), curve = chart.kind === 'curve', inLanes = chart.kind === 'lanes', axis = chart.axis || {}, full = FULL[chart.unit];
    const log = chart.kind === 'heat' || chart.kind === 'nines' || !!axis.log_y;
    const grid = { stroke: ink.line, width: 1 }, font = '11px ' + SANS;
    const series = [{}], stripes = [];
    for (const one of chart.series) {
      const dotted = one.dash === 'dotted';
      if (one.area != null) {
        series.push({ label: one.name, stroke: ink.areas[one.area], width: 0, paths: () => null, points: { show: false } });
        continue;
      }
      series.push({
        label: one.name, stroke: ink.tone[one.tone], width: one.tone === 'quiet' || dotted ? 1.25 : 1.75, dash: DASH[one.dash],
        fill: one.fill ? ink.fill[one.tone] : undefined, spanGaps: curve,
        points: curve ? { show: one.tone !== 'quiet', size: 7, width: 0, fill: ink.tone[one.tone] }
          : { show: dotted || one.values.length < 2, size: dotted ? 3.5 : 6, width: 0, fill: ink.tone[one.tone] },
        paths: (dotted && chart.kind === 'heat') || one.joined === false ? () => null
          : (chart.kind === 'time' || chart.kind === 'stack') && !dotted ? steps(chart) : undefined,
      });
    }
    for (const one of chart.series) {
      if (!one.range) continue;
      const at = series.length;
      for (let side = 0; side < 2; side++) series.push({ stroke: 'transparent', width: 0, points: { show: false } });
      if (!curve) stripes.push({ series: [at + 1, at], fill: ink.fill[one.tone] });
    }
    if (inLanes) series.push({ stroke: 'transparent', width: 0, points: { show: false } });
    const x = chart.x, last = x.length - 1;
    // The first chart of a step carries the labels of its phases and events, above its line.
    const headroom = first && step.bands.length + step.marks.length ? 1.35 : curve && axis.marks ? 1.25 : 1.12;
    const wide = axis.log ? Math.pow(x[last] / x[0], .04) : (x[last] - x[0]) * .04 || 1;
    return {
      width: host.clientWidth, height: host.clientHeight, padding: [6, 18, 0, 0], legend: { show: false }, series, bands: stripes,
      cursor: {
        y: false, drag: { x: timed, y: false, setScale: timed }, focus: { prox: -1 },
        points: { size: 7, width: 1.5, stroke: ink.paper, fill: (u, i) => u.series[i].width ? series[i].stroke : 'transparent' },
        sync: timed ? { key: step.key, setSeries: false, scales: ['x', null] } : undefined,
      },
      select: { show: timed },
      scales: {
        // Whole columns are shown, also the outer halves of the first and the last.
        x: curve ? { time: false, ...(axis.log ? { distr: 3, log: 2 } : {}),
          range: () => axis.log ? [x[0] / wide, x[last] * wide] : [x[0] - wide, x[last] + wide] }
          : inLanes ? { time: false, range: (u, low, high) => [low, high] }
          : { time: false, range: (u, low, high) => low === x[0] && high === x[last] ? [0, chart.x_max] : [low, high] },
        y: log ? { distr: 3, log: 10, range: (u, low, high) => logRange(chart, low, high) }
          : inLanes ? { range: () => [0, 1] }
          : chart.kind === 'stack' ? { range: u => { const most = pileHeight(chart, u.scales.x.min, u.scales.x.max); return [0, chart.unit === 'percent' ? Math.max(100, most) : most > 0 ? most * headroom : 1]; } }
          : { range: (u, low, high) => [0, high > 0 ? high * headroom : 1] },
      },
      axes: [
        {
          stroke: ink.faint, font, grid: timed ? { show: false } : grid, ticks: { ...grid, size: 4 }, size: 26, gap: 3,
          space: PHONE.matches ? 52 : 72,
          incrs: [.1, .2, .5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800],
          splits: timed || axis.labels ? undefined : curve ? () => x : () => NINES.filter(nine => nine <= chart.x_max + 1e-9),
          filter: curve ? (u, splits) => splits : undefined,
          values: (u, splits) => curve ? sparse(u, splits, v => short('count', v))
            : splits.map(v => timed ? clock(v) : v ? percentile(v) : ''),
        },
        {
          stroke: ink.faint, font, grid: inLanes ? { show: false } : grid, ticks: { show: false }, size: PHONE.matches ? 50 : 56, gap: 6,
          space: inLanes ? 1 : 26, splits: inLanes ? () => chart.lanes.names.map((_, at) => 1 - (at + .5) / chart.lanes.names.length) : log ? (u, i, low, high) => oneTwoFive(low, high) : undefined,
          filter: log || inLanes ? (u, splits) => splits : undefined,
          values: (u, splits) => inLanes ? chart.lanes.names : splits.map(v => v == null ? '' : short(chart.unit, v)),
        },
      ],
      hooks: {
        drawClear: timed ? [bands(step, chart, first)] : [],
        drawAxes: [curve ? behindPoints(chart) : inLanes ? lanes(chart) : chart.kind === 'stack' ? pile(chart) : heat(chart)],
        draw: timed ? [marks(step, first)] : curve ? [beforePoints(chart)] : [],
        setCursor: [u => readout(u, chart, full)],
        setScale: timed ? [(u, key) => { if (key === 'x') zoomed(step, u); }] : [],
      },
    };
  };
  const logRange = (chart, low, high) => {
    if (chart.heat) return [chart.heat.edges[0], chart.heat.edges[chart.heat.edges.length - 1] * 1.05];
    low = low > 0 ? low : 1;
    return [low / 1.25, Math.max(high, low * 2) * (chart.axis && chart.axis.labels ? 1.9 : 1.25)];
  };

  // Crosshair: the legend's numbers are those under it.
  const when = (chart, index) => {
    if (chart.kind === 'nines') return percentile(chart.x[index]);
    if (chart.kind === 'curve') return three(chart.x[index]).replace(/\.0+$/, '') + ' ' + chart.axis.name;
    if (chart.lanes) return clock(chart.x[index]);
    const from = chart.x[index] - chart.column_s / 2;
    return chart.column_s < 1.5 ? clock(from) : clock(from) + ' to ' + clock(from + chart.column_s);
  };
  const readout = (u, chart, full) => {
    const figure = u.root.closest('figure'), index = u.cursor.idx;
    const none = index == null || u.cursor.left < 0;
    if (chart.lanes) {
      const at = none ? 0 : u.posToVal(u.cursor.left, 'x'), near = (u.scales.x.max - u.scales.x.min) * 6 / Math.max(u.bbox.width / px(), 1);
      figure.querySelector('.at output').textContent = none ? '' : 'at ' + clock(at);
      figure.querySelector('.legend .one output').textContent = none ? '' : going(chart, at, near).slice(0, 2).map(item => item.text.slice(0, 60)).join('; ');
      return;
    }
    figure.querySelector('.at output').textContent = none ? '' : 'at ' + when(chart, index);
    figure.querySelectorAll('.legend .one output').forEach((out, at) => {
      const value = none ? null : chart.series[at].values[index];
      out.textContent = value == null ? '' : full(value);
    });
  };
  const move = (plot, index) => {
    const { chart, step } = plot;
    for (const other of plots) {
      const same = other === plot || (isTimed(chart) && other.step === step && isTimed(other.chart));
      if (!same) continue;
      if (index == null) other.u.setCursor({ left: -10, top: -10 });
      else other.u.setCursor({ left: other.u.valToPos(chart.x[index], 'x'), top: 10 });
    }
    plot.index = index;
    if (index == null) return;
    const item = chart.lanes && chart.lanes.items[index];
    const values = item ? [chart.lanes.names[item.lane] + ' ' + item.text] : chart.series.map(one => one.name + ' ' + (one.values[index] == null ? 'none' : FULL[chart.unit](one.values[index])));
    announce.textContent = chart.title + ' at ' + when(chart, index) + ': ' + values.join(', ');
  };
  const keys = plot => event => {
    const last = plot.chart.x.length - 1, at = plot.index, far = event.shiftKey ? 10 : 1;
    const to = { ArrowRight: at == null ? 0 : Math.min(last, at + far), ArrowLeft: at == null ? last : Math.max(0, at - far),
      Home: 0, End: last }[event.key];
    if (event.key === 'Escape') move(plot, null);
    else if (to !== undefined) move(plot, to);
    else return;
    event.preventDefault();
  };

  // Zoom: all charts over time of one step show the same stretch, and the address tells which.
  let zooming = false;
  const zoomed = (step, u) => {
    if (zooming || !u.ready) return;
    const { min, max } = u.scales.x;
    zoomTo(step, min, max);
  };
  const zoomTo = (step, min, max) => {
    zooming = true;
    const timed = step.charts.find(isTimed), whole = timed && min <= 1e-9 && max >= timed.x_max - 1e-9;
    for (const plot of plots) {
      if (plot.step === step && isTimed(plot.chart)) plot.u.setScale('x', { min, max });
    }
    zooming = false;
    document.getElementById('step=' + step.key).classList.toggle('is-zoomed', !whole);
    if (whole) { if (state.step === step.key) delete state.t; }
    else { state.step = step.key; state.t = bare(min.toFixed(3)) + '-' + bare(max.toFixed(3)); }
    writeHash();
  };
  // A link to a window of time zooms, and goes where the charts are; what else the reader chose stays.
  for (const link of document.querySelectorAll('a.window')) link.onclick = event => {
    const [, key, from, to] = /^#step=(.*)&t=([\d.]+)-([\d.]+)$/.exec(link.getAttribute('href')) || [];
    const step = data.steps.find(one => one.key === decodeURIComponent(key || ''));
    if (!step || !step.charts.length) return;
    event.preventDefault();
    zoomTo(step, +from, +to);
    toStep(step);
  };
  const toStep = step => document.getElementById('step=' + step.key).scrollIntoView();
  for (const button of document.querySelectorAll('button.copy')) {
    if (!navigator.clipboard) { button.hidden = true; continue; }
    button.onclick = () => navigator.clipboard.writeText(button.parentNode.querySelector('code').textContent)
      .then(() => { button.textContent = 'Copied'; setTimeout(() => { button.textContent = 'Copy'; }, 1500); }, () => { button.hidden = true; });
  }
  const applyZoom = () => {
    const match = /^([\d.]+)-([\d.]+)$/.exec(state.t || ''), step = data.steps.find(one => one.key === state.step);
    if (match && step && step.charts.length && +match[1] < +match[2]) zoomTo(step, +match[1], +match[2]);
  };

  // A table behind each chart, made when it is opened.
  const fillTable = (chart, details) => {
    if (details.querySelector('table')) return;
    const cell = (row, tag, text) => { const c = row.appendChild(document.createElement(tag)); c.textContent = text; return c; };
    const box = details.appendChild(document.createElement('div'));
    box.className = 'scroll tall'; box.tabIndex = 0; box.setAttribute('role', 'region'); box.setAttribute('aria-label', chart.title + ', table');
    const table = box.appendChild(document.createElement('table'));
    const head = table.createTHead().insertRow();
    cell(head, 'th', { nines: 'percentile', curve: (chart.axis || {}).name }[chart.kind] || 'time');
    if (chart.lanes) for (const name of ['until', 'lane', 'what']) cell(head, 'th', name).className = 'word';
    for (const one of chart.series) {
      cell(head, 'th', one.name);
      if (one.range) { cell(head, 'th', 'lowest'); cell(head, 'th', 'highest'); }
    }
    const body = table.createTBody(), full = v => v == null ? '' : FULL[chart.unit](v);
    chart.x.forEach((_, index) => {
      const row = body.insertRow();
      cell(row, 'td', when(chart, index));
      const item = chart.lanes && chart.lanes.items[index];
      if (item) for (const text of [item.to > chart.x[index] ? clock(item.to) : '', chart.lanes.names[item.lane], item.text]) cell(row, 'td', text).className = 'text';
      for (const one of chart.series) {
        cell(row, 'td', full(one.values[index]));
        if (one.range) { cell(row, 'td', full(one.range.low[index])); cell(row, 'td', full(one.range.high[index])); }
      }
    });
  };

  const columns = chart => {
    // The axis of lanes is as wide as that of the others, wherever their things stand.
    if (chart.lanes) return [[0, ...chart.x, chart.x_max], [null, ...chart.x.map(() => null), null]];
    const all = [chart.x, ...chart.series.map(one => one.values)];
    for (const one of chart.series) if (one.range) all.push(one.range.low, one.range.high);
    return all;
  };
  const draw = () => {
    readColours();
    zooming = true;
    for (const plot of plots.splice(0)) plot.u.destroy();
    for (const step of data.steps) {
      step.charts.forEach((chart, index) => {
        const host = document.getElementById('plot-' + chart.id);
        if (!host.clientWidth) return;
        const u = new uPlot(options(step, chart, host, index === 0), columns(chart), host);
        u.ready = true;
        const plot = { u, chart, step, host, index: null };
        host.onkeydown = keys(plot);
        host.onblur = () => move(plot, null);
        plots.push(plot);
      });
    }
    zooming = false;
    for (const ramp of document.querySelectorAll('.ramp')) ramp.style.background = 'linear-gradient(90deg,' + [0, 16, 32, 48, 63].map(at => ink.heat[at]).join(',') + ')';
    applyZoom();
  };

  const darkNow = () => state.theme ? state.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  const toggle = document.getElementById('theme');
  const applyTheme = () => {
    if (state.theme) root.dataset.theme = state.theme; else delete root.dataset.theme;
    toggle.textContent = darkNow() ? 'Light' : 'Dark';
    toggle.setAttribute('aria-label', 'Switch to ' + (darkNow() ? 'light' : 'dark') + ' colours');
    draw();
  };
  toggle.onclick = () => { state.theme = darkNow() ? 'light' : 'dark'; writeHash(); applyTheme(); };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', applyTheme);
  addEventListener('hashchange', () => { readHash(); applyTheme(); if (flames) flames.apply(); });
  for (const button of document.querySelectorAll('.zoomed')) {
    const step = data.steps.find(one => one.key === button.dataset.step);
    button.onclick = () => zoomTo(step, 0, step.charts.find(isTimed).x_max);
  }
  for (const step of data.steps) for (const chart of step.charts) {
    const details = document.getElementById('table-' + chart.id);
    details.addEventListener('toggle', () => { if (details.open) fillTable(chart, details); });
  }
  // Paper is white and narrow: charts are drawn anew for it, and again afterwards.
  const paper = on => { root.classList.toggle('printing', on); root.style.width = on ? '184mm' : ''; draw(); };
  addEventListener('beforeprint', () => paper(true));
  addEventListener('afterprint', () => paper(false));
  let width = innerWidth;
  addEventListener('resize', () => { if (innerWidth !== width) { width = innerWidth; draw(); } });

  readHash();
  applyTheme();
  const flames = flameGraphs({ state, writeHash, announce });
  const linked = data.steps.find(one => one.key === state.step);
  if (linked && state.t) toStep(linked);
  window.pgfathomPage = { data, plots, state, troubles, draw, applyTheme, zoomTo, root };
  setTimeout(() => {
    root.dataset.ready = troubles.length ? 'troubled' : 'yes';
    if ('selftest' in state) selftest();
  }, 0);

  // With #selftest the page checks itself and writes what it found into the document; the project's browser test reads it.
  async function selftest() {
    const found = { charts: data.steps.reduce((sum, step) => sum + step.charts.length, 0), problems: [] };
    const check = (ok, text) => { if (!ok) found.problems.push(text); };
    const settle = () => new Promise(done => setTimeout(done, 10)); // uPlot draws in a microtask
    const complain = console.error;
    console.error = (...words) => { found.problems.push('console: ' + words.join(' ')); complain(...words); };
    // Both themes on the screen, and paper, which is light whatever the theme.
    for (const theme of ['light', 'dark', 'paper']) {
      if (theme === 'paper') dispatchEvent(new Event('beforeprint'));
      else { state.theme = theme; applyTheme(); }
      await settle();
      check(plots.length === found.charts, theme + ': ' + plots.length + ' of ' + found.charts + ' charts drawn');
      const paperNow = getComputedStyle(document.body).backgroundColor;
      check(paperNow === (theme === 'dark' ? 'rgb(17, 20, 24)' : 'rgb(252, 252, 251)'), theme + ': background is ' + paperNow);
      for (const { u, chart } of plots) {
        const { left, top, width: wide, height: high } = u.bbox;
        const pixels = u.ctx.getImageData(left, top, wide, high).data, colours = new Set();
        let painted = 0;
        for (let at = 0; at < pixels.length; at += 4) {
          if (pixels[at + 3] < 40) continue;
          painted++; colours.add(pixels[at] >> 4 << 8 | pixels[at + 1] >> 4 << 4 | pixels[at + 2] >> 4);
        }
        check(painted > 60 && colours.size > 1, theme + ': ' + chart.id + ' is blank: ' + painted + ' pixels, ' + colours.size + ' colours');
        check(theme === 'paper' || u.root.getBoundingClientRect().right <= innerWidth + 1, theme + ': ' + chart.id + ' is wider than the window');
      }
    }
    dispatchEvent(new Event('afterprint')); await settle();
    const plain = plots.find(plot => isTimed(plot.chart));
    if (plain) {
      const press = key => plain.host.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
      press('End'); await settle();
      const figures = plots.filter(plot => plot.step === plain.step && isTimed(plot.chart)).map(plot => plot.host.closest('figure'));
      check(figures.every(figure => figure.querySelector('.at output').textContent.startsWith('at ')), 'the crosshair is not shared by the keyboard');
      check(announce.textContent.includes(plain.chart.title), 'the crosshair is not announced');
      press('Escape'); await settle();
      check(figures.every(figure => figure.querySelector('.at output').textContent === ''), 'Escape leaves the crosshair');
      zoomTo(plain.step, plain.chart.x_max / 4, plain.chart.x_max / 2); await settle();
      check(location.hash.includes('t=') && location.hash.includes('step='), 'the zoom is not in the address: ' + location.hash);
      check(plots.filter(plot => plot.step === plain.step && isTimed(plot.chart)).every(plot => Math.abs(plot.u.scales.x.max - plain.chart.x_max / 2) < 1e-6), 'the zoom is not shared');
      for (const { chart, u } of plots) if (chart.kind === 'stack' && u.scales.x.max === plain.chart.x_max / 2)
        check(u.scales.y.max >= pileHeight(chart, u.scales.x.min, u.scales.x.max), chart.id + ' is higher than its axis');
      zoomTo(plain.step, 0, plain.chart.x_max); await settle();
      check(!location.hash.includes('t='), 'a reset zoom stays in the address');
    }
    for (const plot of plots.filter(plot => plot.chart.lanes)) {
      plot.host.dispatchEvent(new KeyboardEvent('keydown', { key: 'Home', bubbles: true, cancelable: true })); await settle();
      check(announce.textContent.includes(plot.chart.lanes.items[0].text), plot.chart.id + ' does not say what happened first');
      check(plot.host.closest('figure').querySelector('.one output').textContent !== '', plot.chart.id + ' has an empty legend under the crosshair');
      plot.host.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true, cancelable: true })); await settle();
    }
    for (const link of document.querySelectorAll('a.window')) {
      link.click(); await settle();
      const [, key, from, to] = /^#step=(.*)&t=([\d.]+)-([\d.]+)$/.exec(link.getAttribute('href')) || [];
      const mine = plots.filter(plot => plot.step.key === decodeURIComponent(key || '') && isTimed(plot.chart));
      check(mine.every(({ u }) => Math.abs(u.scales.x.min - from) < 1e-3 && Math.abs(u.scales.x.max - to) < 1e-3), link.hash + ' does not zoom');
      const whole = mine.length && +from <= 0 && +to >= mine[0].chart.x_max;
      check(!mine.length || whole || location.hash.includes('t='), link.hash + ' is not in the address');
      if (mine.length) { zoomTo(mine[0].step, 0, mine[0].chart.x_max); await settle(); }
    }
    for (const step of data.steps) for (const chart of step.charts) {
      const details = document.getElementById('table-' + chart.id);
      details.open = true; await settle();
      check(details.querySelectorAll('tbody tr').length === chart.x.length, chart.id + ' has no table');
      details.open = false;
      check(chart.lanes || chart.x.length <= 600, chart.id + ' has ' + chart.x.length + ' columns');
    }
    if (flames) flames.check(check);
    check(root.scrollWidth <= innerWidth, 'the page scrolls sideways: ' + root.scrollWidth + ' > ' + innerWidth);
    check(performance.getEntriesByType('resource').length === 0, 'something was loaded');
    for (const element of document.querySelectorAll('[id]')) check(document.querySelectorAll('[id="' + element.id + '"]').length === 1, 'id twice: ' + element.id);
    for (const trouble of troubles) check(false, trouble);
    found.width = innerWidth;
    found.ready = root.dataset.ready;
    const out = document.body.appendChild(document.createElement('script'));
    out.type = 'application/json'; out.id = 'selftest'; out.textContent = JSON.stringify(found);
    if (parent !== window) parent.postMessage(out.textContent, '*');
    root.dataset.selftest = found.problems.length ? 'fail' : 'pass';
  }
})();
