import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Reads a topic as a member of a consumer group (KIP-848): TOPIC COUNT KEY=VALUE...
 *
 * Commits after every poll. Prints a line for each record, and one when it was given partitions.
 * Ends when it has read COUNT records.
 */
public class Consume {
    public static void main(String[] words) {
        int wanted = Integer.parseInt(words[1]);
        Properties settings = new Properties();
        for (int i = 2; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        settings.put("group.protocol", "consumer");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        StringDeserializer text = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, text, text)) {
            consumer.subscribe(List.of(words[0]), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    partitions.forEach(each -> System.out.println("assigned\t" + each.partition()));
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    partitions.forEach(each -> System.out.println("revoked\t" + each.partition()));
                }
            });
            int read = 0;
            long deadline = System.currentTimeMillis() + 60_000;
            while (read < wanted && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println("read\t" + record.value());
                    read++;
                }
                consumer.commitSync();
            }
        }
        System.out.println("closed");
    }
}
