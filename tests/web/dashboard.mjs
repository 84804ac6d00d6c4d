// SPDX-License-Identifier: MIT
// What a person would do with the dashboard, step by step. Called by dashboard.sh, which says in the environment where everything is.
import { createRequire } from 'node:module';
import { execSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

const { MODEL, MODELS, TALKER, ROWS, VALID, OUT, REMOTE, REMOTE_TOKEN, CHROMIUM, SHOTS, CUT, LINK, VICTIM, MODULES } = process.env;
const slow = Number(process.env.SLOW || 1), base = process.env.URL || 'http://127.0.0.1:8473/';
const require = createRequire(`${MODULES}/`);
const { chromium } = require(`${MODULES}/playwright-core`);
const axe = readFileSync(`${MODULES}/axe-core/axe.min.js`, 'utf8');

const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
const complaints = [], foreign = [], streams = [];

function ok(what) {
    console.log(`ok: ${what}`);
}

function listenTo(page) {
    page.on('console', m => ['error', 'warning'].includes(m.type()) && complaints.push(`${m.text()} (${m.location().url})`));
    page.on('pageerror', e => complaints.push(`${e.stack}`));
    page.on('request', r => {
        if (!r.url().startsWith(base) && !r.url().startsWith(REMOTE))
            foreign.push(r.url());
        if (r.url().includes('/v1/events'))
            streams.push(r.url());
    });
}

async function newPage(options = {}) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, colorScheme: 'light', reducedMotion: 'reduce', ...options });
    context.setDefaultTimeout(30000 * slow);
    const page = await context.newPage();
    listenTo(page);
    return page;
}

/** What `ringctl dashboard` prints: a link that lets one browser in, once. */
function newLink() {
    return execSync(LINK, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
}

async function shoot(page, name, options) {
    if (!SHOTS)
        return;
    if (options?.fullPage) // what sticks to the top of the window belongs to the top of the picture
        await page.evaluate(() => scrollTo(0, 0));
    await page.screenshot({ path: `${SHOTS}/${name}.png`, ...options });
}

/** Everything axe-core knows to be a barrier, on the page as it stands now. */
async function checkAxe(page, where) {
    // Evaluated from here, not by a script element: the page's policy holds.
    const found = await page.evaluate(`(() => { ${axe}; return axe.run(document, { resultTypes: ['violations'] })
        .then(r => r.violations.map(v => v.id + ': ' + v.help + ' at ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 120) + ' ' + (n.any[0]?.message || '')).join(' | '))); })()`);
    if (found.length)
        throw new Error(`${where}: axe-core found ${found.join('\n  ')}`);
    ok(`${where}: nothing for axe-core to say`);
}

async function goTo(page, hash) {
    await page.evaluate(h => { location.hash = h; }, hash);
}

/* --- an idle ring --- */

const page = await newPage(), link = newLink();
await page.goto(link);
await page.waitForSelector('svg.ring g.node >> nth=2');
if (!link.startsWith(`${base}#ticket=`) || page.url() !== `${base}#/`)
    throw new Error(`the link ${link} led to ${page.url()}`);
if (await page.evaluate(() => document.cookie))
    throw new Error('a script can read the cookie of the session');
// The same link in another browser lets nobody in, and neither does the address alone.
const late = await newPage();
await late.goto(link);
await late.waitForSelector('#ask[open]');
await late.waitForSelector('#trouble:has-text("has been used")');
if (await late.locator('svg.ring g.node').count())
    throw new Error('a link lets two browsers in');
await late.goto(newLink()); // as somebody would who is asked
await late.waitForSelector('svg.ring g.node >> nth=2');
await late.context().close();
complaints.splice(0, complaints.length, ...complaints.filter(c => !/401 \(Unauthorized\)/.test(c)));
ok('a link lets one browser in, and the page stays open to it');
await page.waitForSelector('#live:has-text("live")');
const title = await page.textContent('#home h1');
if (!/^A ring of 3/.test(title))
    throw new Error(`the page says "${title}"`);
await page.waitForSelector('text=Nothing has run here yet');
await page.waitForSelector('tbody tr >> nth=2');
ok('three nodes, this node\'s three cables, no jobs');
await checkAxe(page, 'idle ring');
await shoot(page, 'idle');

// By keyboard alone: the first stop leads to the content, and pages are links.
await page.keyboard.press('Tab');
if (await page.evaluate(() => document.activeElement.className) !== 'skip')
    throw new Error('the first stop of the keyboard is not the way to the content');

/* --- a model with a name: what of it must travel, and who holds it --- */

await page.click('nav >> text=Generate');
await page.fill('#prompt', 'Once');
await page.selectOption('#generate-model-list', '');
await page.fill('#generate-model', 'test/big');
await page.click('#generate-form >> text=Show the plan');
await page.waitForSelector('#generate-plan .travel');
const travel = await page.textContent('#generate-plan .travel');
if (!/[\d.]+ MiB must travel first: [\d.]+ m?s at [\d.]+ [MGk]b\/s/.test(travel) || !/b lacks [\d.]+ MiB of [\d.]+ MiB: from a/.test(travel))
    throw new Error(`the plan says "${travel}"`);
ok('a plan says what of a model must travel first, from whom and how long');
await checkAxe(page, 'plan with a model on its way');
await shoot(page, 'travel');
await page.evaluate(() => localStorage.removeItem('ringd-generate'));
await page.click('nav >> text=Models');
await page.waitForSelector('#models .pill:text-is("ready")');
await page.waitForSelector('#models .keys li >> nth=2');
const holders = await page.locator('#models .keys li').allTextContents();
if (!/^Also on,b [\d.]+ %,c [\d.]+ %$/.test(holders.sort()))
    throw new Error(`the model is "${holders}"`);
ok('the models of this node, and who else holds how much');
await page.click('#models button:text-is("Pin")');
await page.waitForSelector('#models .pill:text-is("pinned")');
await checkAxe(page, 'models');
await shoot(page, 'models');
await page.reload();
await page.waitForSelector('#models .pill:text-is("pinned")');
await page.click('#models button:text-is("Unpin")');
await page.waitForSelector('#models .pill:text-is("ready")');
ok('a model is pinned, and no longer');

/* --- a job so long that it is still at work when everything has been looked at; then cancelled --- */

await page.click('nav >> text=New job');
// The models the node knows are listed: nobody types the path of one that lies where models lie.
await page.waitForSelector('#train-model-list:visible');
const models = await page.locator('#train-model-list option').allTextContents();
if (models[0] !== `tiny-llama (${MODELS})` || models[models.length - 1] !== 'another directory …' || await page.inputValue('#train-model') !== `${MODELS}/tiny-llama`)
    throw new Error(`the list of models is ${models}, chosen is ${await page.inputValue('#train-model')}`);
await page.selectOption('#train-model-list', '');
await page.waitForSelector('#train-model:focus');
await page.fill('#train-model', MODEL);
await page.fill('#train-data', ROWS);
await page.fill('#train-adapter_out', OUT);
await page.fill('#train-iters', '600');
await page.fill('#train-batch_size', '8');
await page.fill('#train-seq_len', '128');
await page.fill('#train-lr', '0.005');
await page.click('summary >> text=More');
await page.fill('#train-valid', VALID);
await page.fill('#train-eval_every', '20');
await page.fill('#train-sample_prompt', 'The program');
await page.fill('#train-sample_every', '25');
await page.waitForSelector('#train-schedule option[value=auto]', { state: 'attached' }); // named by the node
if (await page.inputValue('#train-schedule') !== '1f1b')
    throw new Error(`the schedule is ${await page.inputValue('#train-schedule')} before anybody chose one`);
await page.selectOption('#train-lr_schedule', 'cosine');
await page.fill('#train-warmup', '5');
await page.fill('#train-target_modules', 'all-linear');
await page.fill('#train-max_grad_norm', '1');
await checkAxe(page, 'form');
await shoot(page, 'form');
await page.click('button >> text=Show the plan');
await page.waitForSelector('#train-plan .stages li >> nth=2');
if (!/600 steps on 3 nodes/.test(await page.textContent('#train-plan h2')))
    throw new Error(`the plan is of ${await page.textContent('#train-plan h2')}`);
if (!/A step.*predicted.*Bubble.*of its time a node waits/.test(await page.textContent('#train-plan')))
    throw new Error(`the plan predicts nothing: ${await page.textContent('#train-plan')}`);
ok('the plan is shown before the start, with its step and its bubble');
await checkAxe(page, 'plan');
await shoot(page, 'plan', { fullPage: true });
await page.fill('#train-data', '/nowhere.jsonl');
if (await page.locator('#train-plan .stages').count())
    throw new Error('a plan of something else stays');
await page.click('button >> text=Show the plan');
await page.waitForSelector('#train-error:has-text("/nowhere.jsonl")');
complaints.splice(0, complaints.length, ...complaints.filter(c => !/400 \(Bad Request\).*v1\/plan/.test(c)));
ok('a plan that cannot be made says why');
await page.fill('#train-data', ROWS);
await page.click('button >> text=Start');
await page.waitForURL(/#\/job\/1$/);
await page.waitForSelector('.pill:has-text("running")');
await page.waitForSelector('.chart canvas');
await page.waitForSelector('svg.gantt .task');
ok('submitted, watched while it runs: curves and timeline are there');
await page.waitForFunction(() => parseInt(document.querySelector('#job .figure dd')?.textContent, 10) >= 60, null, { timeout: 90000 * slow });
await page.waitForSelector('.samples .n:text-is("step 50")');
const points = await page.getAttribute('.plot.large', 'aria-label');
if (!/from step 0 /.test(points))
    throw new Error(`the validation before the first step is missing: ${points}`);
await checkAxe(page, 'running job');
await shoot(page, 'running', { fullPage: true });
await page.click('#log');
await page.fill('#smooth', '0.9');
await goTo(page, '#/');
await page.waitForSelector('.now .spark');
await page.waitForSelector('svg.ring g.node.busy');
await shoot(page, 'running-ring');
await checkAxe(page, 'ring at work');
await goTo(page, '#/job/1');
await page.click('button:text-is("Pause")');
await page.waitForSelector('.head .pill:text-is("paused")');
await page.waitForSelector('.head .notice:has-text("paused after step")');
await checkAxe(page, 'paused job');
await shoot(page, 'paused');
await page.click('button:text-is("Continue")');
await page.waitForSelector('.head .pill:text-is("running")');
ok('a job is paused from its page, and goes on');
await page.click('text=Cancel this job');
await page.waitForSelector('.head .pill:has-text("cancelled")');
ok('cancelled from its page');

/* --- a short one, to its end --- */

await page.click('nav >> text=New job');
await page.fill('#train-iters', '40');
await page.fill('#train-eval_every', '10');
await page.fill('#train-sample_every', '15');
await page.click('button >> text=Start');
await page.waitForURL(/#\/job\/2$/);
await page.waitForSelector('.head .pill:has-text("done")', { timeout: 120000 * slow });
await page.waitForSelector('.panel:has(h2:text-is("Result")) dt:text-is("valid loss")');
const loss = await page.textContent('.head .figure:has-text("Validation") dd');
ok(`the job is done, validation ${loss}`);
const steps = await page.locator('.samples .n').allTextContents();
if (steps.join() !== 'step 40,step 30,step 15' || !/^The program./.test(await page.textContent('.samples .prose')))
    throw new Error(`samples of ${steps}: ${await page.textContent('.samples .prose')}`);
ok('samples were taken on the way');
await checkAxe(page, 'finished job');
await page.emulateMedia({ colorScheme: 'dark' });
await checkAxe(page, 'finished job, dark');
await shoot(page, 'finished', { fullPage: true });

/* --- text, as it comes --- */

await page.click('nav >> text=Generate');
await page.fill('#generate-model', MODEL);
await page.fill('#generate-max_tokens', '24');
await page.fill('#prompt', 'The terms of');
await page.click('#generate-form >> text=Show the plan');
await page.waitForSelector('#generate-plan .stages li >> nth=2');
await checkAxe(page, 'plan of a generation');
await shoot(page, 'generate-plan');
await page.click('#generate-form button.main');
await page.waitForFunction(() => document.querySelector('#talk .coming')?.textContent.length > 0 || document.querySelector('#talk .asked + span:not(.coming)')?.textContent.length > 0);
if (await page.locator('#generate-plan .stages').count())
    throw new Error('a plan says that nothing was started, and it was');
await page.waitForFunction(() => document.querySelector('#talk .asked') && !document.querySelector('#talk .coming'));
ok('text streams into the box');
await checkAxe(page, 'generate');
await shoot(page, 'generate');

/* --- a model that is served, and a conversation with it --- */

await page.click('nav >> text=Chat');
await page.click('#chat-empty >> text=Serve a model');
await page.waitForSelector('#serve-model-list:visible');
await page.selectOption('#serve-model-list', '');
await page.fill('#serve-model', TALKER);
await page.fill('#serve-name', 'talker');
await page.click('#serve-form >> text=More');
await page.fill('#serve-max_context', '8192');
await page.click('#serve-form >> text=Show the plan');
await page.waitForSelector('#serve-plan .stages li >> nth=2');
await checkAxe(page, 'form of a model to serve');
await shoot(page, 'serve');
await page.click('#serve-form button.main');
await page.waitForURL(/#\/job\/4$/);
await page.waitForSelector('.head :text("Nobody has asked it yet")');
await page.click('.head button:text-is("Chat")');
await page.waitForFunction(() => document.querySelector('#chat-model')?.value === 'talker');
await checkAxe(page, 'a conversation that has not begun');
await page.click('.choices summary');
await page.fill('#chat-max_completion_tokens', '40');
await page.fill('#chat-seed', '7');
await page.fill('#chat-system', 'In the beginning God created the heaven and the earth. And the earth was without form, and void; and darkness was upon the face of the deep.');

const last = '.turn.assistant:last-child', over = `${last} button:text-is("Regenerate")`, written = () => page.textContent(`${last} .written`);
async function ask(text) {
    await page.fill('#chat-text', text);
    await page.keyboard.press('Enter');
}
await ask('God created');
await page.waitForSelector(over);
const said = await written();
if (said.length < 20 || !/^first token after .* 40 tokens/.test(await page.textContent(`${last} .after .hint`)))
    throw new Error(`the model said "${said}", and of it: ${await page.textContent(`${last} .after`)}`);
await page.waitForSelector(`${last} :text("Cut off")`);
await page.click(over);
await page.waitForFunction(sel => !document.querySelector(sel), `${last} .coming`);
await page.waitForSelector(over);
if (await written() !== said)
    throw new Error(`with the same seed it said "${said}", then "${await written()}"`);
await ask('And');
await page.waitForSelector(`.turn:nth-child(4) .after :text("of the prompt were known")`);
ok('a conversation: the same seed says the same, and a second turn knows the first');
await checkAxe(page, 'a conversation');
await shoot(page, 'chat');

// An answer without an end goes on while another page is read, and its model is seen to work.
await page.fill('#chat-max_completion_tokens', '');
await ask('Sing without end');
await page.waitForSelector(`${last} .coming :text-matches(".{30}")`);
const early = (await written()).length;
await page.click('nav >> text=Ring');
await page.waitForSelector('.serving li:has-text("talker") .figure:has-text("Requests") dd:text-is("1")');
await page.waitForSelector('.serving li:has-text("talker") .kv');
if ((await page.locator('.serving .keys li').allTextContents()).sort().join() !== 'a,b,c')
    throw new Error(`talker is served by ${await page.locator('.serving .keys li').allTextContents()}`);
await checkAxe(page, 'a model at work');
await shoot(page, 'serving');
await page.goBack();
await page.click('button:text-is("Stop")');
await page.waitForSelector(`${last} :text("Stopped.")`);
const stopped = await written();
if (stopped.length <= early)
    throw new Error(`the answer stood still at ${early} letters while another page was read`);
await page.waitForSelector('#chat-go button:text-is("Send")');
ok('an answer goes on behind other pages, until it is stopped');

// It is there again after the page was loaded anew, and gone when it is deleted.
await page.reload();
await page.waitForSelector(`${last} .written`);
if (await written() !== stopped || await page.locator('.turn').count() !== 6)
    throw new Error('a conversation does not outlive its page');
await page.click('text=New conversation');
await page.waitForSelector('#chat-empty h1:has-text("talker")');
await page.click('.choices summary');
await page.fill('#chat-max_completion_tokens', '40'); // no token ends an answer
await ask('Once');
await page.waitForSelector(over);
if ((await page.locator('#talks .title').allTextContents()).join() !== 'Once,God created')
    throw new Error(`the conversations are ${await page.locator('#talks .title').allTextContents()}`);
await page.hover('#talks li >> nth=1');
await page.click('#talks li >> nth=1 >> button');
await page.waitForSelector('#talks li:only-child');
if (await page.evaluate(() => Object.keys(localStorage).filter(key => key.startsWith('ringd-talk')).length) !== 1)
    throw new Error('a conversation that was deleted is still kept');
ok('conversations are kept in the browser until they are deleted');

/* --- what a model may write --- */

const shown = await page.evaluate(async () => {
    const { markdown } = await import('./markdown.js');
    const place = document.createElement('div');
    document.body.append(place);
    place.append(...markdown(['# Head', 'a **b** *c* `d<e>` ~~f~~ [site](https://example.org/?a=1&b=2 "t") 3 < 4 &amp; 5', '- one\n- two\n  1. deep', '- [x] done', '> said',
        '```c\nif (a < b)\n    return "</code><script>hit()</script>";\n```', '| x | y |\n|---|:-:|\n| 1 | **2** |', '***', '```js\nopen'].join('\n\n')).flat(Infinity).filter(Boolean));
    const clean = place.innerHTML;
    const attacks = ['<script>window.hit = 1</script>', '<img src=x onerror="window.hit = 1">', '<svg onload="window.hit = 1">', '[a](javascript:window.hit=1)', '[a](JaVaScRiPt&colon;window.hit=1)', '[a](&#106;avascript:window.hit=1)',
        '![p](http://127.0.0.1:9/p.png)', '![p](x" onerror="window.hit=1)', '[a](data:text/html,<script>window.hit=1</script>)', '[a](/v1/jobs/1)', '<iframe src="http://127.0.0.1:9/"></iframe>', '<a href="javascript:window.hit=1">x</a>',
        '`<img src=x onerror=window.hit=1>`', '```"><img src=x onerror=window.hit=1>\nx\n```', '<javascript:window.hit=1>', '[a]: javascript:window.hit=1\n\n[a]', '<style>body{display:none}</style>', '| <img src=x onerror=window.hit=1> |\n|---|\n', '> '.repeat(1500) + 'x', '[\n'.repeat(3000), '*a '.repeat(50000)];
    const left = [];
    for (const text of attacks) {
        const from = performance.now();
        place.replaceChildren(...markdown(text).flat(Infinity).filter(Boolean));
        for (const e of place.querySelectorAll('*'))
            if (['SCRIPT', 'IMG', 'SVG', 'IFRAME', 'STYLE', 'LINK', 'OBJECT'].includes(e.nodeName.toUpperCase()) || [...e.attributes].some(a => a.name.startsWith('on')) || (e.hasAttribute('href') && !/^(https?|mailto):/.test(e.href)))
                left.push(`${text.slice(0, 60)} → ${e.outerHTML.slice(0, 100)}`);
        if (!place.textContent.trim())
            left.push(`${text.slice(0, 60)} → nothing is shown`);
        if (performance.now() - from > 5000)
            left.push(`${text.slice(0, 60)} → took ${performance.now() - from} ms`);
    }
    await new Promise(done => setTimeout(done, 0)); // what runs by itself has run
    place.remove();
    return { clean, left, hit: window.hit };
});
if (shown.hit || shown.left.length)
    throw new Error(`a model reaches into the page: ${shown.left.join('\n  ')}`);
for (const part of ['<h3>Head</h3>', '<strong>b</strong>', '<em>c</em>', '<code>d&lt;e&gt;</code>', '<del>f</del>', 'href="https://example.org/?a=1&amp;b=2"', '3 &lt; 4 &amp; 5', '<ol><li>deep</li></ol>',
    '<blockquote><p>said</p></blockquote>', '&lt;/code&gt;&lt;script&gt;hit()', '<td>1</td>', '<strong>2</strong>', '<hr>', '<span>js</span>', '<code>open</code>'])
    if (!shown.clean.includes(part))
        throw new Error(`Markdown has no ${part}: ${shown.clean}`);
ok('Markdown becomes elements of the page, and nothing else does');

/* --- runs beside each other --- */

await page.click('nav >> text=Runs');
await page.waitForSelector('#runs .plot.large canvas');
if (!/600/.test(await page.textContent('#runs tbody tr:has(a[href="#/job/1"])')))
    throw new Error(`the table of runs says ${await page.textContent('#runs tbody')}`);
await checkAxe(page, 'runs');
await shoot(page, 'runs', { fullPage: true });
for (let ticked; await (ticked = page.locator('#runs input[type=checkbox]:checked')).count();)
    await ticked.first().click();
await page.waitForSelector('#runs :text("Tick the runs")');
ok('runs are compared, those that are ticked');

/* --- what was, over time --- */

await page.click('nav >> text=History');
await page.waitForSelector('#history .panel:has(h2:has-text("Node a")) canvas', { timeout: 90000 * slow }); // points come once a minute
await page.waitForSelector('#history .panel:has(h2:has-text("Cable a – b, port cable")) canvas', { timeout: 90000 * slow });
await page.waitForSelector('#history .panel:has(h2:has-text("Node b")) canvas', { timeout: 90000 * slow });
await page.waitForSelector('#history .panel:has(h2:text-matches("Cable (b – c|c – b)")) canvas', { timeout: 90000 * slow });
if (await page.locator('#history h2:text-matches("Cable [bc] – a")').count())
    throw new Error('a cable is drawn twice');
const kept = await page.locator('#history .chart .strong').allTextContents();
for (const title of ['Memory', 'Work', 'Trained tokens a second', 'Flowing', 'Round trip'])
    if (!kept.includes(title))
        throw new Error(`no chart of ${title}, but of ${kept}`);
await checkAxe(page, 'history');
await shoot(page, 'history', { fullPage: true });
await page.selectOption('#range', '86400');
await page.selectOption('#history-node', 'c');
await page.waitForFunction(() => [...document.querySelectorAll('#history h2')].every(h2 => /^(Node c|Cable c)/.test(h2.textContent)) && document.querySelector('#history canvas'));
ok('the history of every node and cable is drawn, or of one node');

/* --- on a phone, in the dark --- */

// A phone's window grows with what is too wide for it: the screen does not.
const isTooWide = page => page.evaluate(() => document.documentElement.scrollWidth > screen.width);
const phone = await newPage({ viewport: { width: 360, height: 780 }, colorScheme: 'dark', isMobile: true, hasTouch: true });
await phone.goto(newLink());
await phone.waitForSelector('svg.ring g.node >> nth=2');
await phone.waitForSelector('.jobs li');
if (await isTooWide(phone))
    throw new Error('the page is wider than a phone');
const beyond = await phone.evaluate(() => [...document.querySelectorAll('table.cards th, table.cards td')].filter(c => c.offsetParent && c.getBoundingClientRect().right > screen.width).map(c => c.textContent));
if (beyond.length)
    throw new Error(`of the cables, a phone does not show ${beyond.join(' | ')}`);
await checkAxe(phone, 'phone, dark');
await shoot(phone, 'phone', { fullPage: true });
await goTo(phone, '#/job/2');
await phone.waitForSelector('.chart canvas');
await phone.waitForSelector('svg.gantt .task');
if (await isTooWide(phone))
    throw new Error('a job\'s page is wider than a phone');
await checkAxe(phone, 'job on a phone');
await shoot(phone, 'phone-job');
await goTo(phone, '#/chat');
await phone.waitForSelector('#chat-empty h1:has-text("talker")');
await phone.fill('#chat-text', 'Go');
await phone.tap('#chat-go button');
await phone.waitForSelector('.turn.assistant .written :text-matches(".{30}")');
await phone.tap('#chat-go button:text-is("Stop")');
await phone.waitForSelector('.turn.assistant :text("Stopped.")');
if (await isTooWide(phone))
    throw new Error('a conversation is wider than a phone');
await checkAxe(phone, 'conversation on a phone');
await shoot(phone, 'phone-chat');
await phone.context().close();

/* --- another node, over the network: nothing is seen without its token --- */

const far = await newPage();
await far.goto(REMOTE);
await far.waitForSelector('#ask[open]');
if (await far.locator('svg.ring g.node').count())
    throw new Error('a node shows itself to the network without a token');
await checkAxe(far, 'a node that asks for its token');
await far.fill('#ask-token', REMOTE_TOKEN);
await far.click('#ask button[value=ok]');
await far.waitForSelector('svg.ring g.node >> nth=2');
await far.waitForSelector('#live:has-text("live")');
await far.waitForSelector('.jobs li:has-text("#2@a"):has-text("tiny-llama"):has-text("loss"):has(.pill:text-is("done"))');
await shoot(far, 'far');
await far.click('.jobs a:has-text("#2@a")');
await far.waitForSelector('.head h1:has-text("Job 2@a")');
await far.waitForSelector('.chart canvas');
await far.waitForSelector('.panel:has(h2:text-is("Result")) dt:text-is("valid loss")');
await checkAxe(far, 'a job of another node');
await far.click('nav >> text=New job');
await far.waitForSelector('#train-model-list:visible');
if (!(await far.locator('#train-model-list option').allTextContents()).some(name => name.startsWith('tiny-llama')))
    throw new Error('the models of other nodes\' jobs are not listed');
ok('another node lists the jobs of all, and shows them in full');
await goTo(far, '#/');
await far.click('.serving li:has-text("Job 4@a") button:text-is("Chat")');
await far.waitForFunction(() => document.querySelector('#chat-model')?.value === 'talker');
await far.click('.choices summary');
await far.fill('#chat-max_completion_tokens', '20');
await far.fill('#chat-text', 'Once');
await far.keyboard.press('Enter');
await far.waitForSelector(over);
await far.waitForSelector(`${last} .after :text("20 tokens")`);
ok('another node passes a conversation on to the model');
await far.context().close();
complaints.splice(0, complaints.length, ...complaints.filter(c => !/401 \(Unauthorized\)/.test(c)));
ok('another node shows itself over the network to those with its token');

/* --- a cable pulled, a node killed --- */

await goTo(page, '#/job/4');
await page.click('.head button:text-is("Stop serving")');
await page.waitForSelector('.head .pill:has-text("cancelled")');
await goTo(page, '#/');
await page.waitForSelector('svg.ring');
execSync(CUT);
await page.waitForSelector('tr.off .pill:text-is("out")', { timeout: 15000 * slow });
ok('a cable that is pulled is shown as such');
const killed = Date.now();
process.kill(Number(VICTIM), 'SIGKILL');
await page.waitForSelector('svg.ring g.node.gone', { timeout: 15000 * slow });
await page.waitForSelector('text=No word from node c');
const took = (Date.now() - killed) / 1000;
if (took > 10 * slow)
    throw new Error(`a killed node was shown after ${took} s`);
ok(`a killed node is shown after ${took.toFixed(1)} s`);
await page.waitForFunction(() => /for ([3-9]|1\d) s/.test(document.querySelector('.notice.bad')?.textContent));
await checkAxe(page, 'dead node');
await shoot(page, 'dead');


/* --- the node itself silent --- */

await page.context().setOffline(true);
await page.waitForSelector('body.stale', { timeout: 20000 * slow });
await page.waitForSelector('#trouble >> text=what you see is from then');
await checkAxe(page, 'out of date');
await shoot(page, 'stale');
complaints.splice(0, complaints.length, ...complaints.filter(c => !/ERR_INTERNET_DISCONNECTED/.test(c)));
await page.context().setOffline(false);
await page.waitForSelector('#live:has-text("live")', { timeout: 20000 * slow });
ok('silence of the node itself is told, and its return');

await browser.close();
// A step is told by its head, its timeline once the last rank has told of it: asked in between there is none, which the page says.
complaints.splice(0, complaints.length, ...complaints.filter(c => !/404 .*\/timeline\)$/.test(c)));
if (complaints.length)
    throw new Error(`the console has ${complaints.join('\n  ')}`);
if (foreign.length)
    throw new Error(`asked for ${foreign.join(' ')}`);
ok(`no word on the console, no other host; ${streams.length} event streams for three pages`);
