//! Which messages are in which, for builds that write a made-up next version of them.

use std::fmt::Write as _;

use tonic_prost_build::FileDescriptorSet;

/// The number of messages among the types of fields.
const TYPE_MESSAGE: i32 = 11;

/// Which fields of which messages are messages, and of which type, as the source of a table.
pub(crate) fn in_messages(descriptors: &FileDescriptorSet) -> Result<String, std::fmt::Error> {
    let mut table = String::from("&[");
    for file in &descriptors.file {
        for message in &file.message_type {
            let outer = format!("{}.{}", file.package(), message.name());
            for field in message.field.iter().filter(|field| field.r#type == Some(TYPE_MESSAGE)) {
                let inner = field.type_name().trim_start_matches('.');
                writeln!(table, "({outer:?}, {}, {inner:?}),", field.number())?;
            }
        }
    }
    table.push(']');
    Ok(table)
}
