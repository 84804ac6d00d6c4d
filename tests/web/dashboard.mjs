// SPDX-License-Identifier: MIT
// What a person would do with the dashboard, step by step. Called by dashboard.sh, which says in the environment where everything is.
import { createRequire } from 'node:module';
import { execSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

const { MODEL, MODELS, ROWS, VALID, OUT, REMOTE, REMOTE_TOKEN, CHROMIUM, SHOTS, CUT, LINK, VICTIM, MODULES } = process.env;
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

/* --- a job so long that it is still at work when everything has been looked at; then cancelled --- */

await page.click('nav >> text=Train');
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

await page.click('nav >> text=Train');
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

/* --- what was, over time --- */

await page.click('nav >> text=History');
await page.waitForSelector('#history .panel:has(h2:has-text("Node a")) canvas', { timeout: 90000 * slow }); // points come once a minute
await page.waitForSelector('#history .panel:has(h2:has-text("Cable to b, port cable")) canvas', { timeout: 90000 * slow });
const kept = await page.locator('#history .chart .strong').allTextContents();
for (const title of ['Memory', 'Work', 'Trained tokens a second', 'Flowing', 'Round trip'])
    if (!kept.includes(title))
        throw new Error(`no chart of ${title}, but of ${kept}`);
await checkAxe(page, 'history');
await shoot(page, 'history', { fullPage: true });
await page.selectOption('#range', '86400');
ok('the history of the node and of each of its cables is drawn');

/* --- on a phone, in the dark --- */

const phone = await newPage({ viewport: { width: 360, height: 780 }, colorScheme: 'dark', isMobile: true });
await phone.goto(newLink());
await phone.waitForSelector('svg.ring g.node >> nth=2');
await phone.waitForSelector('.jobs li');
if (await phone.evaluate(() => document.documentElement.scrollWidth > innerWidth))
    throw new Error('the page is wider than a phone');
const beyond = await phone.evaluate(() => [...document.querySelectorAll('table.cards th, table.cards td')].filter(c => c.offsetParent && c.getBoundingClientRect().right > innerWidth).map(c => c.textContent));
if (beyond.length)
    throw new Error(`of the cables, a phone does not show ${beyond.join(' | ')}`);
await checkAxe(phone, 'phone, dark');
await shoot(phone, 'phone', { fullPage: true });
await goTo(phone, '#/job/2');
await phone.waitForSelector('.chart canvas');
await phone.waitForSelector('svg.gantt .task');
if (await phone.evaluate(() => document.documentElement.scrollWidth > innerWidth))
    throw new Error('a job\'s page is wider than a phone');
await checkAxe(phone, 'job on a phone');
await shoot(phone, 'phone-job');
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
await far.click('nav >> text=Train');
await far.waitForSelector('#train-model-list:visible');
if (!(await far.locator('#train-model-list option').allTextContents())[0].startsWith('tiny-llama'))
    throw new Error('the models of other nodes\' jobs are not listed');
ok('another node lists the jobs of all, and shows them in full');
await far.context().close();
complaints.splice(0, complaints.length, ...complaints.filter(c => !/401 \(Unauthorized\)/.test(c)));
ok('another node shows itself over the network to those with its token');

/* --- a cable pulled, a node killed --- */

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
