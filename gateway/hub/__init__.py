"""Models from the Hugging Face hub: names, download, and the files on this machine."""
