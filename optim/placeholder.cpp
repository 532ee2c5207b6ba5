// Removed with the first source file of this folder.
