//! Where blocks are put, and what they keep.

use super::*;

#[test]
fn chains_lie_in_consecutive_slots_also_after_they_were_freed_from_the_tail() {
    let mut blocks = Blocks::default();
    let (mut of_one, mut of_two) = (OpenPages::default(), OpenPages::default());
    let mut parent = NONE;
    let mut allocate = |blocks: &mut Blocks| -> Vec<u32> {
        (0..100)
            .map(|_| {
                let other = blocks.allocate(NONE, &mut of_two, 2);
                blocks.write(other, Block::UNKNOWN);
                parent = blocks.allocate(parent, &mut of_one, 1);
                blocks.write(parent, Block::UNKNOWN);
                parent
            })
            .collect()
    };
    let ids = allocate(&mut blocks);
    let steps = ids.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
    assert_eq!(steps, 98, "one step from page to page");
    for &id in ids.iter().rev() {
        blocks.kill(id);
        blocks.free(id, &mut of_one);
    }
    let mut open = OpenPages::default();
    assert_eq!(blocks.len, 100);
    let mut parent = NONE;
    let again: Vec<u32> = (0..100)
        .map(|_| {
            parent = blocks.allocate(parent, &mut open, 3);
            parent
        })
        .collect();
    let steps = again
        .windows(2)
        .filter(|pair| pair[1] == pair[0] + 1)
        .count();
    assert_eq!(steps, 98);
    assert_eq!(blocks.slots.len(), 4 * 64, "pages are used again");
}

#[test]
fn meta_fields_do_not_touch_each_other() {
    let mut block = Block::UNKNOWN;
    assert_eq!((block.level(), block.credited()), (NO_LEVEL, NO_LEVEL));
    block.set_copies(Tier::Cpu, 2);
    block.set_copies(Tier::Disk, MANY_COPIES);
    block.set_state(1, NO_LEVEL);
    block.touch(0xfedc);
    block.set_placed();
    block.set_looks_ahead(true);
    assert_eq!(block.fastest(), Some(1));
    assert_eq!(Tier::ALL.map(|tier| block.copies(tier)), [0, 2, 3]);
    assert_eq!((block.level(), block.credited()), (1, NO_LEVEL));
    assert_eq!(block.touched(), 0xfedc);
    assert!(block.is_placed() && block.is_in_use() && block.looks_ahead());
    assert!(!block.has_branches() && !block.is_opaque() && !block.reaches());
    block.set_copies(Tier::Cpu, 0);
    block.set_copies(Tier::Disk, 0);
    assert!(!block.has_copies() && block.fastest().is_none());
}
