const fine = true;
import { test } from '@playwright/test';
test(fine);
