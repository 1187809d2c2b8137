return 1; } async function more() {
