// Opens pages in headless Chromium as a desk and a telephone, light and dark, and prints what is wrong with each as JSON.
// node look.cjs BROWSER PAGE...; puppeteer-core and axe-core are found by NODE_PATH.
const fs = require("fs");
const puppeteer = require("puppeteer-core");
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const SERIOUS = ["serious", "critical"];

// Writing in one chart that touches other writing in it, or leaves the page.
function overlaps() {
  const faults = [];
  for (const chart of document.querySelectorAll("figure")) {
    const words = [...chart.querySelectorAll("svg text, .name, .value")].map((one) => [one.textContent, one.getBoundingClientRect()]);
    const seen = words.filter(([, box]) => box.width && box.height);
    for (const [text, box] of seen) if (box.right > innerWidth + 1 || box.left < -1) faults.push(`cut off in a chart: ${text}`);
    seen.forEach(([text, a], i) => {
      for (const [other, b] of seen.slice(i + 1))
        if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
          faults.push(`${text} is written over ${other}`);
    });
  }
  return faults.slice(0, 3);
}

// A slider that no key moves, or that changes nothing of what the page says.
async function stuck(page) {
  const faults = [];
  for (const slider of await page.$$("input[type=range]")) {
    const name = await slider.evaluate((one) => one.id);
    const says = () => page.evaluate(() => document.querySelector("[aria-live]").textContent + document.querySelector("pre.command").textContent);
    const seen = new Set();
    await slider.focus();
    await page.keyboard.press("Home");
    for (let i = Number(await slider.evaluate((one) => one.max)); i >= 0; i--) {
      seen.add(await says());
      await page.keyboard.press("ArrowRight");
    }
    if (seen.size <= Number(await slider.evaluate((one) => one.max))) faults.push(`slider ${name} says ${seen.size} things`);
  }
  return faults;
}

async function look(browser, file, width, scheme) {
  const page = await browser.newPage();
  const faults = [];
  page.on("console", (said) => said.type() === "error" && faults.push(`console: ${said.text()}`));
  page.on("pageerror", (error) => faults.push(`script: ${error}`));
  page.on("request", (one) => /^(file|data):/.test(one.url()) || faults.push(`request: ${one.url()}`));
  await page.setViewport({ width, height: 900, isMobile: width < 600, hasTouch: width < 600 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.goto(`file://${file}`);
  faults.push(...(await stuck(page)));
  const front = await page.evaluate(() => document.querySelector("header.front").getBoundingClientRect().bottom);
  if (front > 640) faults.push(`the three lines end ${front} px below the top`);
  await page.evaluate(() => document.querySelectorAll("details").forEach((one) => (one.open = true)));
  faults.push(...(await page.evaluate(overlaps)));
  const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (over > 0) faults.push(`the page scrolls sideways by ${over} px`);
  await page.evaluate(axe);
  const found = await page.evaluate(() => axe.run());
  for (const one of found.violations.filter((v) => SERIOUS.includes(v.impact)))
    faults.push(`${one.id}: ${one.nodes[0].html.slice(0, 200)}`);
  await page.close();
  return faults.map((fault) => ({ file, width, scheme, fault }));
}

async function printed(browser, file) {
  const page = await browser.newPage();
  await page.goto(`file://${file}`);
  await page.setViewport({ width: 690, height: 1000 }); // what A4 leaves between its margins
  await page.emulateMediaType("print");
  const cut = await page.evaluate(() =>
    [...document.querySelectorAll("main *:not(svg *)")]
      .filter((one) => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
      .map((one) => one.outerHTML.slice(0, 120)),
  );
  const bytes = (await page.pdf({ format: "A4" })).length;
  await page.close();
  const faults = cut.slice(0, 3).map((html) => `cut off in print: ${html}`);
  if (bytes < 1000) faults.push("prints nothing");
  return faults.map((fault) => ({ file, width: 690, scheme: "print", fault }));
}

(async () => {
  const [executablePath, ...files] = process.argv.slice(2);
  const browser = await puppeteer.launch({ executablePath, args: ["--no-sandbox"], headless: true });
  const faults = [];
  for (const file of files) {
    for (const width of [1280, 390]) for (const scheme of ["light", "dark"]) faults.push(...(await look(browser, file, width, scheme)));
    faults.push(...(await printed(browser, file)));
  }
  await browser.close();
  console.log(JSON.stringify(faults));
})();
