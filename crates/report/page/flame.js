// Flame graphs that can be searched and zoomed into. The program has drawn them whole, as nested rectangles in percent; without this script they
// are read as they stand. A frame's place is in its attributes, its name and share are its title, so nothing is carried twice.
function flameGraphs(page) {
  'use strict';
  const WIDE_ENOUGH = 1.2; // percent: a narrower text nobody could read
  const { state, writeHash, announce } = page;
  const own = svg => [...svg.children].filter(child => child.tagName === 'svg');
  const number = (element, name) => parseFloat(element.getAttribute(name));
  const graphs = [...document.querySelectorAll('svg.flame')].map((svg, index) => {
    const frames = own(svg).map((box, at) => {
      const title = box.querySelector('title').textContent, end = title.lastIndexOf(': ');
      const text = box.querySelector('text');
      return {
        box, at, title, name: title.slice(0, end), label: text ? text.textContent : title.slice(0, end),
        x: number(box, 'x'), width: number(box, 'width'), y: number(box, 'y'),
      };
    });
    return { svg, index, frames, focus: null, zoom: null };
  });
  if (!graphs.length) return null;

  // A rectangle lies below another when it is deeper and between its sides; hundredths of a percent are what they are written with.
  const EPSILON = .02;
  const holds = (outer, inner) => outer.y <= inner.y && outer.x <= inner.x + EPSILON && inner.x + inner.width <= outer.x + outer.width + EPSILON;
  const lay = graph => {
    const { zoom } = graph, from = zoom ? zoom.x : 0, width = zoom ? zoom.width : 100;
    for (const frame of graph.frames) {
      const above = zoom && frame.y < zoom.y && holds(frame, zoom), shown = !zoom || above || holds(zoom, frame);
      frame.box.style.display = shown ? '' : 'none';
      if (!shown) continue;
      const wide = above ? 100 : Math.min(100, frame.width / width * 100);
      frame.box.setAttribute('x', (above ? 0 : Math.max(0, (frame.x - from) / width * 100)).toFixed(2) + '%');
      frame.box.setAttribute('width', wide.toFixed(2) + '%');
      frame.box.classList.toggle('above', !!above);
      let text = frame.box.querySelector('text');
      if (!text && wide > WIDE_ENOUGH) {
        text = frame.box.appendChild(document.createElementNS(frame.box.namespaceURI, 'text'));
        text.setAttribute('x', 4); text.setAttribute('y', 13);
        text.textContent = frame.label;
      }
      if (text) text.style.display = wide > WIDE_ENOUGH ? '' : 'none';
    }
    graph.reset.hidden = !zoom;
  };
  const zoomTo = (graph, frame) => {
    graph.zoom = frame && frame.width < 99.99 ? frame : null;
    const zoomed = graphs.filter(one => one.zoom).map(one => one.index + '.' + one.zoom.at);
    if (zoomed.length) state.frame = zoomed.join(','); else delete state.frame;
    writeHash();
    lay(graph);
    announce.textContent = graph.zoom ? 'zoomed to ' + frame.title : 'the whole graph';
  };
  const point = (graph, frame) => {
    if (graph.focus) graph.focus.box.classList.remove('at');
    graph.focus = frame;
    if (!frame) return;
    frame.box.classList.add('at');
    announce.textContent = frame.title;
    graph.told.textContent = frame.title;
  };

  // A match below a match is in the same samples: the outermost count.
  const find = word => {
    const small = word.toLowerCase();
    for (const graph of graphs) {
      const hits = small ? graph.frames.filter(frame => frame.name.toLowerCase().includes(small)) : [];
      for (const frame of graph.frames) frame.box.classList.toggle('hit', hits.includes(frame));
      const outermost = hits.filter(hit => !hits.some(other => other !== hit && other.y < hit.y && holds(other, hit)));
      const share = outermost.reduce((sum, hit) => sum + hit.width, 0);
      graph.found.textContent = !small ? '' : hits.length
        ? 'found in ' + share.toFixed(1) + ' % of the samples (' + hits.length + (hits.length === 1 ? ' frame)' : ' frames)')
        : 'not in what is drawn here';
    }
    if (word) state.find = word; else delete state.find;
    writeHash();
  };

  const next = {
    ArrowUp: (all, at) => all.filter(frame => frame.y < at.y && holds(frame, at)).pop(),
    ArrowDown: (all, at) => all.filter(frame => frame.y > at.y && holds(at, frame)).reduce((best, frame) => !best || frame.y < best.y || (frame.y === best.y && frame.width > best.width) ? frame : best, null),
    ArrowLeft: (all, at) => all.filter(frame => frame.y === at.y && frame.x < at.x).reduce((best, frame) => !best || frame.x > best.x ? frame : best, null),
    ArrowRight: (all, at) => all.filter(frame => frame.y === at.y && frame.x > at.x).reduce((best, frame) => !best || frame.x < best.x ? frame : best, null),
    Home: all => all[0],
  };
  const search = document.createElement('p');
  search.className = 'flame-search';
  const label = search.appendChild(document.createElement('label')), input = document.createElement('input');
  label.append('Find a function ', input);
  input.type = 'search';
  input.autocomplete = 'off';
  input.oninput = () => find(input.value.trim());
  const hint = search.appendChild(document.createElement('span'));
  hint.textContent = 'A click zooms in; with the keyboard: arrows, Enter, Escape.';
  graphs[0].svg.closest('.block').before(search);
  for (const graph of graphs) {
    const { svg, frames } = graph;
    const line = document.createElement('p');
    line.className = 'flame-line';
    graph.reset = line.appendChild(document.createElement('button'));
    graph.reset.type = 'button';
    graph.reset.textContent = 'Whole graph';
    graph.found = line.appendChild(document.createElement('b'));
    graph.told = line.appendChild(document.createElement('output'));
    graph.reset.onclick = () => { zoomTo(graph, null); svg.focus(); };
    svg.before(line);
    svg.tabIndex = 0;
    svg.setAttribute('role', 'application');
    svg.setAttribute('aria-roledescription', 'flame graph');
    for (const frame of frames) {
      frame.box.onclick = () => { point(graph, frame); zoomTo(graph, frame); };
      frame.box.onmouseenter = () => { graph.told.textContent = frame.title; };
    }
    svg.onmouseleave = () => { graph.told.textContent = graph.focus ? graph.focus.title : ''; };
    svg.onblur = () => { point(graph, null); graph.told.textContent = ''; };
    svg.onkeydown = event => {
      const shown = frames.filter(frame => frame.box.style.display !== 'none');
      if (event.key === 'Escape') { zoomTo(graph, null); event.preventDefault(); }
      else if ((event.key === 'Enter' || event.key === ' ') && graph.focus) { zoomTo(graph, graph.focus); event.preventDefault(); }
      else if (next[event.key]) {
        const to = graph.focus ? next[event.key](shown, graph.focus) : graph.zoom || shown[0];
        if (to) point(graph, to);
        event.preventDefault();
      }
    };
  }

  // What the address says; also when it changes.
  const apply = () => {
    const wanted = new Map((state.frame || '').split(',').map(part => part.split('.').map(Number)));
    for (const graph of graphs) {
      const frame = graph.frames[wanted.get(graph.index)];
      graph.zoom = frame && frame.width < 99.99 ? frame : null;
      lay(graph);
    }
    input.value = state.find || '';
    find(input.value);
  };
  apply();

  // For the page's check of itself.
  const check = ok => {
    for (const graph of graphs) {
      const press = key => graph.svg.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
      const places = () => graph.frames.map(({ box }) => box.getAttribute('x') + ' ' + box.getAttribute('width') + box.style.display).join();
      const whole = places(), name = 'flame graph ' + graph.index;
      press('Home'); press('ArrowDown');
      // Down to where there is something to zoom into.
      for (let last = null; graph.focus && graph.focus !== last && graph.focus.width > 90;) { last = graph.focus; press('ArrowDown'); }
      const at = graph.focus;
      ok(at && at.y > 0 && announce.textContent === at.title, name + ': the keyboard does not lead down');
      if (!at) continue;
      press('Enter');
      ok(at.box.getAttribute('width') === '100.00%', name + ': a frame does not fill the width it is zoomed to');
      ok(at.width > 99.99 || (location.hash.includes('frame=') && !graph.reset.hidden), name + ': the zoom is not in the address');
      const shown = graph.frames.filter(({ box }) => box.style.display !== 'none');
      ok(shown.every(({ box }) => number(box, 'x') + number(box, 'width') < 100.1), name + ': a frame stands beyond its graph');
      ok(graph.frames.filter(frame => holds(at, frame)).every(frame => shown.includes(frame)), name + ': what a frame calls is not shown');
      press('Escape');
      ok(places() === whole && graph.reset.hidden, name + ': Escape does not bring back the whole');
      input.value = at.name; input.oninput();
      ok(at.box.classList.contains('hit') && / [1-9]/.test(graph.found.textContent), name + ': a search does not find ' + at.name);
      ok(location.hash.includes('find='), name + ': the search is not in the address');
      input.value = 'no such function'; input.oninput();
      ok(!graph.svg.querySelector('.hit') && graph.found.textContent.startsWith('not'), name + ': a search finds what is not there');
      input.value = ''; input.oninput();
      point(graph, null);
    }
  };
  return { apply, check };
}
