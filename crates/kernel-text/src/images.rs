//! The bytes of texts, each once.

use std::collections::BTreeMap;

use afterimage_perf_data::ImageId;

/// Images by their contents: texts with the same bytes share one.
#[derive(Clone, Debug, Default)]
pub struct Images {
    images: BTreeMap<ImageId, Box<[u8]>>,
    bytes: u64,
}

impl Images {
    /// None yet.
    pub fn new() -> Images {
        Images::default()
    }

    /// Keeps these bytes; answers what they are called from now on.
    pub fn insert(&mut self, bytes: &[u8]) -> ImageId {
        let id = ImageId::of(bytes);
        self.images.entry(id).or_insert_with(|| {
            self.bytes += bytes.len() as u64;
            bytes.into()
        });
        id
    }

    /// The bytes of an image.
    pub fn get(&self, id: ImageId) -> Option<&[u8]> {
        self.images.get(&id).map(|bytes| &**bytes)
    }

    /// Forgets an image, such as one that is in the file by now.
    pub fn remove(&mut self, id: ImageId) {
        if let Some(bytes) = self.images.remove(&id) {
            self.bytes -= bytes.len() as u64;
        }
    }

    /// All images by id.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&ImageId, &[u8])> {
        self.images.iter().map(|(id, bytes)| (id, &**bytes))
    }

    /// Bytes of all images together.
    pub fn bytes_held(&self) -> u64 {
        self.bytes
    }
}

impl From<&BTreeMap<ImageId, Vec<u8>>> for Images {
    /// The images of a recording, under the ids that they have there.
    fn from(images: &BTreeMap<ImageId, Vec<u8>>) -> Images {
        let bytes = images.values().map(|bytes| bytes.len() as u64).sum();
        Images { images: images.iter().map(|(id, bytes)| (*id, bytes.as_slice().into())).collect(), bytes }
    }
}
