await page.setContent('<p>nothing</p>');

async function save(): Promise<void> {
  await page.getByRole('button', { name: 'Save' }).click({ timeout: 300 });
}

await save();
