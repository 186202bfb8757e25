// The page's script in a document of our own, for node: what it draws comes out as JSON. node page_dom.js page.html
const html = require("fs").readFileSync(process.argv[2], "utf8");
class Node {
  constructor(tag) {
    Object.assign(this, { tag, attributes: {}, children: [], listeners: {}, offsetTop: 0, parentNode: null, namespaceURI: "svg" });
    this.classList = { toggle: (name, on) => { const all = new Set(this.classes()); on ? all.add(name) : all.delete(name); this.attributes.class = [...all].join(" "); } };
  }
  classes() { return (this.attributes.class || "").split(" ").filter(Boolean); }
  setAttribute(name, value) { this.attributes[name] = String(value); if (name === "value") this.value = String(value); }
  addEventListener(name, listener) { this.listeners[name] = listener; }
  append(...parts) {
    for (const part of parts) {
      const node = part instanceof Node ? part : Object.assign(new Node("#text"), { data: String(part) });
      node.parentNode = this;
      this.children.push(node);
      if (this.tag === "select" && this.value === undefined) this.value = node.value;
    }
  }
  replaceChildren(...parts) { this.children = []; this.append(...parts); }
  set textContent(text) { this.replaceChildren(text); }
  get textContent() { return this.tag === "#text" ? this.data : this.children.map(child => child.textContent).join(""); }
  all() { return [this, ...this.children.flatMap(child => child.all())]; }
  querySelectorAll(selector) { const names = selector.split(".").filter(Boolean); return this.all().filter(node => names.every(name => node.classes().includes(name) || node.tag === name)); }
  querySelector(selector) { return this.querySelectorAll(selector)[0]; }
  focus() {}
}
const root = new Node("html"), ids = {};
root.append(new Node("svg"));
for (const [, tag, id] of html.matchAll(/<(\w+)[^>]*\bid="(\w+)"/g)) root.append(ids[id] = new Node(tag));
ids.story.textContent = html.match(/<script id="story"[^>]*>([\s\S]*?)<\/script>/)[1];
globalThis.document = {
  getElementById: id => ids[id], createElement: tag => new Node(tag), createElementNS: (space, tag) => new Node(tag),
  querySelector: selector => root.querySelector(selector), querySelectorAll: selector => root.querySelectorAll(selector),
};
new Function(html.match(/<script>\n([\s\S]*?)<\/script>/)[1])();
const rows = ids.way.querySelectorAll(".row"), chosen = rows.map(row => { row.listeners.click(); return ids.detail.textContent; });
ids.sublayer.value = ids.head.value = "0"; ids.head.value = "1"; ids.head.onchange();
const named = id => ids.proof.all().find(node => node.attributes.id === id).textContent;
console.log(JSON.stringify({
  about: ids.about.textContent, rows: rows.map(row => row.textContent), chosen, sum: named("sum"), logit: named("logit"),
  weights: ids.text.children.map(token => Number(token.attributes["data-weight"])),
  numbers: ids.numbers.querySelectorAll("tr").map(row => row.children.map(cell => cell.textContent)),
}));
