// The script that the demo runs: a function body with `page`, `context` and `browser` in scope.
// The browser was created with the site as its start page, so `page` shows the login form.
interface Order { id: string; item: string; price: number }

const steps: { step: string; ms: number }[] = [];
async function step<T>(name: string, action: () => Promise<T>): Promise<T> {
  console.log(name);
  const start = Date.now();
  const value = await action();
  steps.push({ step: name, ms: Date.now() - start });
  return value;
}

const readOrders = async (): Promise<Order[]> => {
  await page.getByText('4 orders').waitFor();
  return page.locator('li').evaluateAll(lines => lines.map(line => ({
    id: line.dataset.id,
    item: line.querySelector('.item').textContent,
    price: Number(line.querySelector('.price').textContent),
  })));
};

await step('log in', async () => {
  await page.getByLabel('Name').fill('ada');
  await page.getByLabel('Password').fill('lovelace');
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.waitForURL('**/orders?page=1');
});

const orders = await step('wait for the list and collect it', readOrders);

await step('click to the second page', async () => {
  await page.getByRole('link', { name: 'Next page' }).click();
  await page.waitForURL('**/orders?page=2');
});
orders.push(...await step('collect the second page', readOrders));

const file = await step('download a file', async () => {
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('link', { name: 'Download as CSV' }).click(),
  ]);
  await download.saveAs('orders.csv');
  return download.suggestedFilename();
});

const screenshot = await step('take a screenshot', () => page.screenshot({ type: 'png' }));

return {
  title: await page.title(),
  orders,
  total: orders.reduce((sum, order) => sum + order.price, 0),
  file,
  steps,
  screenshot: screenshot.toString('base64'),
};
