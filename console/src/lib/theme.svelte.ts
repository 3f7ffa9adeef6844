/** Light or dark: as the system says until somebody chooses. */

type Choice = "system" | "light" | "dark";
const KEY = "moldau.theme";

class Theme {
  choice = $state<Choice>("system");
  private systemDark = $state(false);

  start(): void {
    const media = matchMedia("(prefers-color-scheme: dark)");
    this.systemDark = media.matches;
    media.addEventListener("change", (event) => {
      this.systemDark = event.matches;
    });
    const kept = localStorage.getItem(KEY);
    if (kept === "light" || kept === "dark") this.choose(kept);
  }

  get dark(): boolean {
    return this.choice === "system" ? this.systemDark : this.choice === "dark";
  }

  choose(choice: Choice): void {
    this.choice = choice;
    if (choice === "system") {
      localStorage.removeItem(KEY);
      delete document.documentElement.dataset["theme"];
    } else {
      localStorage.setItem(KEY, choice);
      document.documentElement.dataset["theme"] = choice;
    }
  }

  toggle(): void {
    this.choose(this.dark ? "light" : "dark");
  }
}

export const theme = new Theme();
