setTimeout(() => { throw new Error('late'); }, 200);
Promise.reject(new Error('rejected'));
await page.waitForTimeout(600);
return 'went on';
