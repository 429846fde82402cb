"""The pages; each module has one function `page`. Not named pages, which Streamlit would list by file name."""
